//! `plumbline run` as a program: what it says of runs that go wrong, and that nothing is left.
//!
//! The agent is a script that never touches a packet, so a case waits in its control long enough to be disturbed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that can't go on has failed"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

const CASE: &str = "clusterip-from-pod";

/// A run that has come to the control of its only case.
struct Run {
    folder: TempDir,
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Run {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let agent = folder.path().join("agent");
        fs::write(&agent, "#!/bin/sh\ncase $1 in run) exec sleep infinity ;; esac\n").unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args(["run", "--filter", &format!("^{CASE}$")])
            .arg("--agent")
            .arg(&agent)
            .arg("--out")
            .arg(folder.path().join("out"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut run = Self {
            folder,
            child,
            stderr,
        };
        run.until(": the Service");
        run
    }

    /// Reads what it says until a line contains this.
    fn until(&mut self, text: &str) {
        let mut said = String::new();
        loop {
            let before = said.len();
            let read = self.stderr.read_line(&mut said).unwrap();
            assert_ne!(read, 0, "it ended before it said {text:?}: {said}");
            if said[before..].contains(text) {
                return;
            }
        }
    }

    fn signal(&self, pid: u32, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// The process of the case.
    fn case(&self) -> u32 {
        let is_the_case = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words.get(1..3) == Some(&[b"case".as_slice(), CASE.as_bytes()])
                && parent(*pid) == Some(self.child.id())
        };
        let all = fs::read_dir("/proc").unwrap();
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.into_iter()
            .find(is_the_case)
            .expect("the case runs in a process of its own")
    }

    /// Waits for its end: its status, and the only case of its report.
    fn end(mut self) -> (ExitStatus, Value) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.stderr, &mut rest).unwrap();
        let status = self.child.wait().unwrap();
        let left = Path::new("/run/plumbline").join(format!("run-{}", self.child.id()));
        assert!(!left.exists(), "{} is left", left.display());
        let text = fs::read(self.folder.path().join("out/report.json")).unwrap();
        let report: Value = serde_json::from_slice(&text).unwrap();
        assert!(self.folder.path().join("out/junit.xml").is_file());
        (status, report["cases"][0].clone())
    }
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()
}

#[test]
fn a_case_that_is_killed_is_inconclusive_and_says_so() {
    if !testing::root_or_skip("a_case_that_is_killed_is_inconclusive_and_says_so") {
        return;
    }
    let run = Run::start();
    run.signal(run.case(), Signal::SIGKILL);
    let (status, case) = run.end();
    assert_eq!(status.code(), Some(1));
    assert_eq!(
        (case["id"].as_str(), case["verdict"].as_str()),
        (Some(CASE), Some("inconclusive"))
    );
    assert!(case["why"].as_str().unwrap().contains("SIGKILL"), "{case}");
    assert_eq!(
        case["warnings"],
        Value::Array(Vec::new()),
        "its namespaces are removed for it"
    );
}

#[test]
fn an_interrupted_run_reports_cleans_up_and_is_no_pass() {
    if !testing::root_or_skip("an_interrupted_run_reports_cleans_up_and_is_no_pass") {
        return;
    }
    let run = Run::start();
    run.signal(run.child.id(), Signal::SIGINT);
    let (status, case) = run.end();
    assert_eq!(status.code(), Some(130));
    assert_eq!(case["verdict"], "inconclusive");
    assert!(case["why"].as_str().unwrap().contains("interrupted"), "{case}");
    assert_eq!(case["warnings"], Value::Array(Vec::new()));
}

#[test]
fn what_can_not_be_run_is_neither_passed_nor_failed() {
    if !testing::root_or_skip("what_can_not_be_run_is_neither_passed_nor_failed") {
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

#[test]
fn a_case_whose_run_is_killed_cleans_up_by_itself() {
    if !testing::root_or_skip("a_case_whose_run_is_killed_cleans_up_by_itself") {
        return;
    }
    let mut run = Run::start();
    let case = run.case();
    run.signal(run.child.id(), Signal::SIGKILL);
    let report = run
        .folder
        .path()
        .join("out/evidence")
        .join(CASE)
        .join("case.json");
    let deadline = Instant::now() + Duration::from_secs(30);
    while Path::new(&format!("/proc/{case}")).exists() {
        assert!(Instant::now() < deadline, "the case goes on without its run");
        std::thread::sleep(Duration::from_millis(50));
    }
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert!(
        report["why"].as_str().unwrap().contains("interrupted"),
        "{report}"
    );
    run.child.wait().unwrap();
}
