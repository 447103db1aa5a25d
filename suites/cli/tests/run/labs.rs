//! Several labs of one run: which case is in which, and how the end of one, or of the run, affects the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testing::patience::TIMES;

use super::{
    LIMIT, privileged,
    support::{Run, labs, report, signal},
};

/// Two disruptive cases, and another one.
const CASES: [&str; 3] = [
    "release-agent-restart-between",
    "release-established-flows",
    "clusterip-from-pod",
];

/// A run of all three at once, whose agents never touch a packet; returns the lab of each.
fn three_at_once() -> (Run, BTreeMap<&'static str, String>) {
    let filter = format!("^({})$", CASES.join("|"));
    let out = tempfile::tempdir().unwrap();
    let scale = TIMES.to_string();
    let options = [
        ["--filter", &filter],
        ["--labs", "3"],
        ["--jobs", "3"],
        // No case reaches its own limit before the last one has a lab.
        ["--timeout-scale", &scale],
    ];
    let mut run = Run::with_options(CASES[0], out, options.as_flattened());
    let (mut found, mut begun) = (BTreeMap::new(), BTreeSet::new());
    // Until the process of each case prints something: it is in its lab then.
    while begun.len() < CASES.len() {
        let line = run.until("");
        assert!(!line.contains("INCONCLUSIVE"), "it has ended by itself: {line}");
        let Some((case, phase)) = line.split_once(": ") else {
            continue;
        };
        let Some(case) = CASES.into_iter().find(|known| case.ends_with(known)) else {
            continue;
        };
        match phase.strip_prefix("starts in ") {
            Some(lab) => drop(found.insert(case, lab.to_owned())),
            None => drop(begun.insert(case)),
        }
    }
    (run, found)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The supervisor of a lab, from the lab's cgroup.
fn supervisor(run: &Run, lab: &str) -> u32 {
    let is_of = |pid: &u32| {
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        cgroups
            .lines()
            .any(|line| line.ends_with(&format!("/plumbline-lab-{lab}/control")))
    };
    run.supervisors().into_iter().find(is_of).expect("a supervisor")
}

#[test]
fn each_disruptive_case_has_a_lab_of_its_own_whose_end_is_the_end_of_no_other() {
    if !privileged() {
        return;
    }
    let (mut run, of) = three_at_once();
    let mut names: Vec<&String> = of.values().collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "{of:?}");
    assert_eq!(labs(run.child.id()).len(), 3);
    for (case, lab) in &of {
        let line = fs::read(format!("/proc/{}/cmdline", run.started(["case", case]))).unwrap();
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        let order = Path::new(OsStr::from_bytes(words[3]));
        let order: Value = serde_json::from_slice(&fs::read(order).unwrap()).unwrap();
        assert_eq!(order["cluster"], json!({ "lab": lab }), "{case}");
    }

    let killed = CASES[0];
    signal(supervisor(&run, &of[killed]), Signal::SIGKILL);
    let ended = run.until(&format!("{killed} ("));
    assert!(ended.contains("INCONCLUSIVE"), "{ended}");
    signal(run.child.id(), Signal::SIGINT);
    let (status, folder) = run.end_of_all();
    assert_eq!(status.code(), Some(130));
    let report = report(&folder.path().join("out"));
    assert_eq!(report["run"]["labs"], 3);
    for case in report["cases"].as_array().unwrap() {
        let (id, why) = (case["id"].as_str().unwrap(), case["why"].as_str().unwrap());
        assert_eq!(case["verdict"], "inconclusive", "{case}");
        assert_eq!(why.contains("the cluster ended"), id == killed, "{id}: {why}");
        assert_eq!(why.contains("interrupted"), id != killed, "{id}: {why}");
    }
}

#[test]
fn a_run_that_is_killed_takes_all_of_its_labs_along() {
    if !privileged() {
        return;
    }
    let (mut run, of) = three_at_once();
    let pid = run.child.id();
    let supervisors: Vec<u32> = of.values().map(|lab| supervisor(&run, lab)).collect();
    signal(pid, Signal::SIGKILL);
    run.child.wait().unwrap();
    wait_until("its supervisors end", || {
        supervisors
            .iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
    wait_until("its labs are gone", || labs(pid).is_empty());
}
