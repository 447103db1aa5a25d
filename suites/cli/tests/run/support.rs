//! A run of one case that is going on, to be disturbed.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

/// A run of one case.
pub(crate) struct Run {
    pub(crate) folder: TempDir,
    pub(crate) child: Child,
    case: &'static str,
    stderr: BufReader<ChildStderr>,
}

impl Run {
    /// In a lab of its own, whose agent never touches a packet, so that the case waits long enough to be disturbed.
    pub(crate) fn with_an_idle_agent(case: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let agent = folder.path().join("agent");
        fs::write(&agent, "#!/bin/sh\ncase $1 in run) exec sleep infinity ;; esac\n").unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let target = ["--agent".to_owned(), agent.to_string_lossy().into_owned()];
        Self::start(case, folder, &target)
    }

    /// In a lab that is up.
    pub(crate) fn in_lab(case: &'static str, lab: &str) -> Self {
        Self::start(
            case,
            tempfile::tempdir().unwrap(),
            &["--lab".to_owned(), lab.to_owned()],
        )
    }

    fn start(case: &'static str, folder: TempDir, target: &[String]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args(["run", "--filter", &format!("^{case}$")])
            .args(target)
            .arg("--out")
            .arg(folder.path().join("out"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self {
            folder,
            child,
            case,
            stderr,
        }
    }

    /// Reads what it says until a line contains this.
    pub(crate) fn until(&mut self, text: &str) {
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

    /// The process of the case.
    pub(crate) fn case(&self) -> u32 {
        self.started(["case", self.case])
    }

    /// The process that is the lab.
    pub(crate) fn supervisor(&self) -> u32 {
        self.started(["lab", "supervise"])
    }

    /// The process that the run started with these arguments first.
    fn started(&self, arguments: [&str; 2]) -> u32 {
        let is_it = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words.get(1..3) == Some(&arguments.map(str::as_bytes)) && parent(*pid) == Some(self.child.id())
        };
        let all = fs::read_dir("/proc").unwrap();
        let mut pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.find(is_it).expect("it has a process of its own")
    }

    /// Waits for its end: its status, and the only case of its report.
    pub(crate) fn end(mut self) -> (ExitStatus, Value) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        let left = Path::new("/run/plumbline").join(format!("run-{}", self.child.id()));
        assert!(!left.exists(), "{} is left", left.display());
        let text = fs::read(self.folder.path().join("out/report.json")).unwrap();
        let report: Value = serde_json::from_slice(&text).unwrap();
        assert!(self.folder.path().join("out/junit.xml").is_file());
        (status, report["cases"][0].clone())
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
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
