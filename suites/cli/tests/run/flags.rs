//! Options of `plumbline run`, and runs that can't write.

use std::{fs, process::Command};

use nix::sys::signal::Signal;
use serde_json::json;

use super::{
    PART, privileged,
    support::{Run, report, signal},
};

/// The case needs two nodes, so it is skipped with one.
const SKIPPED: [&str; 4] = ["--nodes", "1", "--filter", "^empty-refill-no-restart$"];

#[test]
fn a_quick_run_says_on_every_line_and_in_its_report_that_it_is_no_conformance() {
    if !privileged() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["run", "-v", "--quick", "--out"])
        .arg(out.path())
        .args(SKIPPED)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for line in said.lines() {
        assert!(line.starts_with("quick"), "{line:?} of {said}");
    }
    let last = said.lines().find(|line| line.contains(" passed, "));
    assert!(
        last.unwrap().starts_with("quick  quick, no conformance: "),
        "{said}"
    );
    for part in [
        "hold 3s",
        "probes 14",
        "profile quick",
        "endpoint propagation 30s",
        "1 skipped",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(report(out.path())["run"]["profile"], "quick");
    let validated = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["report", "validate"])
        .arg(out.path().join("report.yaml"))
        .output()
        .unwrap();
    let refused = String::from_utf8_lossy(&validated.stderr);
    assert_eq!(validated.status.code(), Some(2));
    assert!(refused.contains("expected a run without --quick"), "{refused}");
}

#[test]
fn a_run_says_in_its_report_what_it_was_told() {
    if !privileged() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["run", "-v"])
        .args(SKIPPED)
        .args([
            "--features",
            "dual-stack,sctp",
            "--profile",
            "cluster",
            "--timeout-scale",
            "2",
        ])
        .args([
            "--shuffle",
            "--seed",
            "7",
            "--jobs",
            "3",
            "--labs",
            "2",
            "--claims",
            "empty-refill-no-restart",
            "--out",
        ])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // The header's columns are as wide as the longest name.
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "cluster lab, ready in",
        ", lab of 1 node: ",
        ", IPv4",
        "features dual-stack, sctp",
        "endpoint propagation 60s",
        "hold 30s",
        "pods 600s",
        "profile cluster",
        "nothing to run: 1 case is left out",
        "needs 2 nodes (there are 1)",
        "0 passed, 0 failed, 1 skipped",
        "report.html",
    ] {
        assert!(words.contains(part), "{part:?} is not in {said}");
    }
    let report = report(out.path());
    let expected = json!({"seed": 7, "shuffled": true, "profile": "cluster", "labs": 2, "jobs": 3, "tries": 2,
                          "evidence": "failed", "rerun": false});
    assert_eq!(report["run"], expected);
    assert_eq!(report["cluster"]["features"], json!(["dual-stack", "sctp"]));
    assert_eq!(report["cluster"]["nodes"].as_object().unwrap().len(), 1);
    assert_eq!(report["limits"]["T_ep_seconds"], json!(60.0));
    assert_eq!(report["cases"][0]["verdict"], "skipped");
    let replay = report["cases"][0]["replay"].as_str().unwrap();
    assert!(
        replay.ends_with("--nodes 1 --profile cluster --timeout-scale 2 --features dual-stack,sctp"),
        "{replay}"
    );

    let shown = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["report", "validate"])
        .arg(out.path().join("report.yaml"))
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
}

#[test]
fn after_the_first_failure_nothing_begins_and_what_failed_can_be_run_again() {
    if !privileged() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let case = "empty-refill-no-restart";
    let both = "^(clusterip-from-pod|empty-refill-no-restart)$";
    let options = ["--filter", both, "--jobs", "1", "--fail-fast", "--exempt"];
    let exempt = format!("{case}=known to be slow");
    let mut run = Run::with_options(
        case,
        out,
        &[&options[..], &[exempt.as_str(), "--seed", "11"]].concat(),
    );
    // Its own process prints this.
    run.until("empty-refill-no-restart: clients and fence");
    signal(run.case(), Signal::SIGKILL);
    let (status, out) = run.end_of_all();
    assert_eq!(
        status.code(),
        Some(1),
        "an exemption is for failures, not for what is inconclusive"
    );
    let first = report(&out.path().join("out"));
    let cases = first["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2);
    let of = |id: &str| cases.iter().find(|found| found["id"] == id).unwrap();
    let why = of("clusterip-from-pod")["why"].as_str().unwrap();
    assert!(why.contains("--fail-fast") && why.contains(case), "{why}");
    assert_eq!(of(case)["exempt"], "empty-refill-no-restart: known to be slow");

    let mut again = Run::with_options(
        "clusterip-from-pod",
        out,
        &["--rerun-failed", "--filter", "^clusterip"],
    );
    again.until(PART);
    signal(again.child.id(), Signal::SIGINT);
    let (status, out) = again.end_of_all();
    assert_eq!(status.code(), Some(130));
    let rerun = report(&out.path().join("out/rerun"));
    assert_eq!(rerun["run"]["seed"], 11);
    assert_eq!(
        (&rerun["run"]["rerun"], &rerun["interrupted"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(rerun["cases"].as_array().unwrap().len(), 1);
    assert_eq!(report(&out.path().join("out")), first, "a rerun replaces nothing");
}

#[test]
fn without_a_failure_there_is_nothing_to_run_again() {
    if !privileged() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let rerun = || {
        let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args(["run", "--rerun-failed", "--out"])
            .arg(out.path())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = rerun();
    assert!(
        code == Some(2) && said.contains("--rerun-failed needs the report"),
        "{said}"
    );
    let status = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .arg("run")
        .args(SKIPPED)
        .arg("--out")
        .arg(out.path())
        .output()
        .unwrap()
        .status;
    assert_eq!(status.code(), Some(0));
    let (code, said) = rerun();
    assert!(code == Some(2) && said.contains("nothing to run again"), "{said}");
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file_and_no_verdict_is_lost() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=8k tmpfs {0} && exec \"$@\"",
        out.display()
    );
    let output = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-ec",
            &mount,
            "sh",
            env!("CARGO_BIN_EXE_plumbline"),
            "run",
        ])
        .args(SKIPPED)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    let (said, why) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(2), "{said}\n{why}");
    assert!(said.contains("SKIPPED") && said.contains("1 skipped"), "{said}");
    assert!(
        why.contains("report.html") && why.contains("No space left"),
        "{why}"
    );
}
