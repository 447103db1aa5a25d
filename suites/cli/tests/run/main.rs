//! `plumbline run` as a program: its output if runs go wrong, and that it leaves nothing.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that can't go on has failed"
)]

mod before;
mod bench;
mod chaos;
mod dry_run;
mod ending;
mod existing;
mod files;
mod flags;
mod healed;
mod hosts;
mod kind;
mod kind_nodes;
mod labs;
mod leftovers;
mod lost;
mod pipes;
mod support;
mod targets;
mod wrong_inputs;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use faults::LeftoverPrograms;
use harness::compressed::each_line;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use support::{Run, lab_up, report, signal};
use testing::patience::LIMIT;

const CASE: &str = "clusterip-from-pod";
/// The phase that lasts until its limit with an agent that does nothing.
const PART: &str = ": the Service";

fn none() -> Value {
    Value::Array(Vec::new())
}

/// Lines of a compressed file.
fn lines(path: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    let read = |line: &str| all.push(serde_json::from_str(line).unwrap());
    each_line(path, read).unwrap();
    all
}

fn privileged() -> bool {
    testing::root_or_skip(&testing::current())
}

#[test]
fn a_case_that_is_killed_is_inconclusive_and_says_so() {
    if !privileged() {
        return;
    }
    let mut run = Run::with_an_idle_agent(CASE);
    run.until(PART);
    signal(run.case(), Signal::SIGKILL);
    let (status, folder) = run.end_of_all();
    let out = folder.path().join("out");
    let case = &report(&out)["cases"][0];
    assert_eq!(status.code(), Some(1));
    assert_eq!(
        (case["id"].as_str(), case["verdict"].as_str()),
        (Some(CASE), Some("inconclusive"))
    );
    assert!(case["why"].as_str().unwrap().contains("SIGKILL"), "{case}");
    assert_eq!(case["warnings"], none(), "its namespaces are removed for it");
    let evidence = out.join(case["evidence"].as_str().unwrap());
    let history = lines(&evidence.join("history.jsonl.gz"));
    let is = |line: &&Value, event: &str| line["event"] == event;
    assert!(history.iter().any(|line| is(&line, "write")), "{history:?}");
    let last = history.iter().rfind(|line| is(line, "phase")).unwrap();
    assert!(last["name"].as_str().unwrap().contains("the Service"), "{last}");
    assert!(evidence.join("attempts.jsonl.gz").is_file());
}

#[test]
fn a_case_that_is_inconclusive_is_tried_again_and_what_it_showed_first_is_kept() {
    if !privileged() {
        return;
    }
    let filter = format!("^{CASE}$");
    let mut run = Run::with_options(
        CASE,
        tempfile::tempdir().unwrap(),
        &["--filter", &filter, "--tries", "2"],
    );
    run.until(PART);
    signal(run.case(), Signal::SIGKILL);
    run.until("will be tried again");
    run.until(PART);
    signal(run.child.id(), Signal::SIGINT);
    let (status, folder) = run.end_of_all();
    assert_eq!(status.code(), Some(130));
    let out = folder.path().join("out");
    let case = &report(&out)["cases"][0];
    assert!(case["why"].as_str().unwrap().contains("interrupted"), "{case}");
    let first = &case["undecided"][0];
    assert!(first["why"].as_str().unwrap().contains("SIGKILL"), "{first}");
    assert_eq!(first["evidence"], format!("evidence/{CASE}.1"));
    let evidence = out.join("evidence").join(format!("{CASE}.1"));
    assert!(evidence.join("attempts.jsonl.gz").is_file(), "all of it is kept");
}

#[test]
fn a_lab_that_ends_under_a_case_is_no_verdict_on_the_target() {
    if !privileged() {
        return;
    }
    let mut run = Run::with_an_idle_agent(CASE);
    run.until(PART);
    signal(run.supervisor(), Signal::SIGKILL);
    let (status, case) = run.end();
    assert_eq!(status.code(), Some(1));
    assert_eq!(case["verdict"], "inconclusive", "{case}");
    assert!(
        case["why"].as_str().unwrap().contains("the cluster ended"),
        "{case}"
    );
}

#[test]
fn an_interrupted_run_reports_cleans_up_and_is_no_pass() {
    if !privileged() {
        return;
    }
    let mut run = Run::with_an_idle_agent(CASE);
    run.until(PART);
    signal(run.child.id(), Signal::SIGINT);
    let (status, case) = run.end();
    assert_eq!(status.code(), Some(130));
    assert_eq!(case["verdict"], "inconclusive");
    assert!(case["why"].as_str().unwrap().contains("interrupted"), "{case}");
    assert_eq!(case["warnings"], none());
}

#[test]
fn a_case_whose_run_is_killed_cleans_up_by_itself() {
    if !privileged() {
        return;
    }
    let mut run = Run::with_an_idle_agent(CASE);
    run.until(PART);
    let case = run.case();
    signal(run.child.id(), Signal::SIGKILL);
    let report = run
        .folder
        .path()
        .join("out/evidence")
        .join(CASE)
        .join("case.json");
    let deadline = Instant::now() + LIMIT;
    while Path::new(&format!("/proc/{case}")).exists() {
        assert!(Instant::now() < deadline, "the case goes on without its run");
        std::thread::sleep(Duration::from_millis(50));
    }
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    // The lab ends with the run, too: the case may notice either first.
    let why = report["why"].as_str().unwrap();
    assert!(
        why.contains("interrupted") || why.contains("the cluster ended"),
        "{report}"
    );
    run.child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_killed_between_two_generations_leaves_no_program_and_no_agent_down() {
    if !privileged() {
        return;
    }
    let name = format!("killed-{}", std::process::id());
    let lab = lab_up(&name).await;
    let mut run = Run::in_lab("stale-sock-legacy-multi", &name);
    run.until(": witness");
    signal(run.case(), Signal::SIGKILL);
    let (status, case) = tokio::task::spawn_blocking(move || run.end()).await.unwrap();
    assert_eq!(
        (status.code(), case["verdict"].as_str()),
        (Some(1), Some("inconclusive"))
    );
    let undone = json!("the agent of node1 was stopped, and is started");
    assert!(case["warnings"].as_array().unwrap().contains(&undone), "{case}");

    let deadline = Instant::now() + LIMIT;
    loop {
        let ready = lab
            .cluster()
            .agents()
            .unwrap()
            .state("node1")
            .await
            .unwrap()
            .ready
            == Some(true);
        let mut looked = LeftoverPrograms::hold(lab.cluster(), "node1", &["connect4"], LIMIT)
            .await
            .unwrap();
        let attached = looked.list().await.unwrap().remove(0);
        if ready && attached.direct.len() == 1 && attached.effective == attached.direct {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "ready: {ready}, attached: {attached:?}"
        );
    }
    lab.down().await.unwrap();
}

#[test]
fn an_agent_that_ends_by_itself_is_not_judged_but_named_with_what_it_said() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join("agent");
    fs::write(&agent, "#!/bin/sh\necho no such option >&2\nexit 3\n").unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["run", "--filter", CASE, "--agent"])
        .arg(&agent)
        .arg("--out")
        .arg(folder.path().join("out"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("does not run"), "{said}");
    assert!(said.contains("no such option"), "{said}");
}

#[test]
fn what_can_not_be_run_is_neither_passed_nor_failed() {
    if !privileged() {
        return;
    }
    for wrong in [
        ["--filter", "no-such-case"],
        ["--agent", "/no/such/agent"],
        ["--lab", "no-such-lab"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .arg("run")
            .args(wrong)
            .arg("--out")
            .arg(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(wrong[1]), "{wrong:?}: {said}");
    }
}
