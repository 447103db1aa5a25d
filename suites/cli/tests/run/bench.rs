//! `plumbline bench`, as short as it gets: every figure is there, and nothing is left.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::privileged;

fn bench(out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    command.args([
        "bench",
        "--target",
        "reference",
        "--rounds",
        "2",
        "--each",
        "50",
        "--services",
        "3,5",
    ]);
    command.arg("--out").arg(out);
    command
}

#[test]
fn every_way_and_exchange_is_measured_direct_and_by_a_service() {
    if !privileged() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let child = bench(out.path()).stdout(Stdio::piped()).spawn().unwrap();
    let own = format!("bench-{}-", child.id());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // The folder goes with the last lab.
    let labs = fs::read_dir("/run/plumbline").into_iter().flatten();
    let mut names = labs.filter_map(|lab| lab.ok()?.file_name().into_string().ok());
    assert!(!names.any(|lab| lab.starts_with(&own)), "the labs are gone");
    let read = |name: &str| fs::read_to_string(out.path().join(name)).unwrap();
    let samples = read("bench.csv");
    let mut answered = BTreeMap::new();
    let mut lines = 0;
    for line in samples.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let exchanges: u64 = fields[6].parse().unwrap();
        *answered
            .entry((fields[0].to_owned(), fields[2..6].join(" ")))
            .or_insert(0) += exchanges;
        lines += 1;
    }
    // Two numbers of Services, five ways, five exchanges; direct in a lab without an implementation, direct and by a Service in
    // the reference's; in two rounds.
    assert_eq!(
        (answered.len(), lines),
        (2 * 5 * 5 * 3, 2 * 2 * 5 * 5 * 3),
        "{samples}"
    );
    for (what, exchanges) in answered {
        // A direct datagram from a client's port that a flow by the node port still has is answered from the node port's address: a fault of
        // the reference that this benchmark has found. All of a short measurement can be lost.
        if what.1.contains("near direct") {
            continue;
        }
        assert!(exchanges > 0, "nothing was answered: {what:?}");
    }
    let changes = read("changes.csv");
    assert_eq!(
        changes.lines().count(),
        1 + 2 * 2 * 2,
        "beside no other changes, and beside some: {changes}"
    );
    let starts = read("starts.csv");
    let took: Vec<f64> = starts
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(took.len(), 2 * 3, "three for each number of Services: {starts}");
    assert!(took.iter().all(|took| *took > 0.0), "{starts}");
    let page = read("bench.html");
    let said = String::from_utf8(output.stdout).unwrap();
    for what in [
        "by a Service",
        "outside → load balancer → pod of another node",
        "cold start",
        "MiB",
    ] {
        assert!(said.contains(what), "{what}: {said}");
        assert!(page.contains(what), "{what}: {page}");
    }
}
