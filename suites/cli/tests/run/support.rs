//! A running run of one case, to be disturbed.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};

use lab::{LabCluster, LabConfig, Lifetime};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use testing::patience::TIMES;

/// A lab with the reference agent, which is removed on drop.
pub(crate) async fn lab_up(name: &str) -> LabCluster {
    let config = LabConfig {
        timeout_scale: TIMES,
        ..LabConfig::new(name).unwrap()
    };
    LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .unwrap()
}

/// A run of one case.
pub(crate) struct Run {
    pub(crate) folder: TempDir,
    pub(crate) child: Child,
    case: &'static str,
    stderr: BufReader<ChildStderr>,
}

impl Run {
    /// Runs the case in a lab of its own, whose agent never touches a packet, so that the case waits long enough to be
    /// disturbed. It has one try, like all of these runs unless options change that.
    pub(crate) fn with_an_idle_agent(case: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = ["--agent".to_owned(), idle_agent(folder.path())];
        Self::start(case, folder, &target)
    }

    /// Runs the case in a running lab; its waits may take long.
    pub(crate) fn in_lab(case: &'static str, lab: &str) -> Self {
        let scale = TIMES.to_string();
        let options = ["--lab", lab, "--timeout-scale", &scale].map(str::to_owned);
        Self::start(case, tempfile::tempdir().unwrap(), &options)
    }

    /// Runs every case that a filter in the options matches; `case` is the first of them.
    pub(crate) fn with_options(case: &'static str, out: TempDir, options: &[&str]) -> Self {
        let agent = idle_agent(out.path());
        let mut all = vec!["--agent".to_owned(), agent];
        all.extend(options.iter().map(|option| (*option).to_owned()));
        Self::spawn(case, out, &all)
    }

    fn start(case: &'static str, folder: TempDir, target: &[String]) -> Self {
        let mut options = vec!["--filter".to_owned(), format!("^{case}$")];
        options.extend(target.iter().cloned());
        Self::spawn(case, folder, &options)
    }

    fn spawn(case: &'static str, folder: TempDir, options: &[String]) -> Self {
        let tries = ["--tries", "1"].map(str::to_owned);
        let tries = if options.contains(&tries[0]) {
            &[][..]
        } else {
            &tries
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            // Tests wait for phases.
            .args(["run", "-v"])
            .args(options)
            .args(tries)
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

    /// Reads output until a line contains this, and returns that line.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let mut said = String::new();
        loop {
            let before = said.len();
            let read = self.stderr.read_line(&mut said).unwrap();
            assert_ne!(read, 0, "it ended before it said {text:?}: {said}");
            if said[before..].contains(text) {
                return said[before..].trim().to_owned();
            }
        }
    }

    /// The process of the case.
    pub(crate) fn case(&self) -> u32 {
        self.started(["case", self.case])
    }

    /// The supervisor of the lab.
    pub(crate) fn supervisor(&self) -> u32 {
        self.started(["lab", "supervise"])
    }

    /// The supervisors of the labs.
    pub(crate) fn supervisors(&self) -> Vec<u32> {
        self.children(["lab", "supervise"])
    }

    /// The run's first child with these arguments.
    pub(crate) fn started(&self, arguments: [&str; 2]) -> u32 {
        let all = self.children(arguments);
        *all.first().expect("it has a process of its own")
    }

    fn children(&self, arguments: [&str; 2]) -> Vec<u32> {
        let is_it = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words.get(1..3) == Some(&arguments.map(str::as_bytes)) && parent(*pid) == Some(self.child.id())
        };
        let all = fs::read_dir("/proc").unwrap();
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(is_it).collect()
    }

    /// Waits for the end; returns the status and the only case of the report.
    pub(crate) fn end(self) -> (ExitStatus, Value) {
        let (status, case, _) = self.end_with_words();
        (status, case)
    }

    /// As [`Run::end`], with the remaining output.
    pub(crate) fn end_with_words(self) -> (ExitStatus, Value, String) {
        let (status, folder, said) = self.end_of_everything();
        let out = folder.path().join("out");
        for name in ["junit.xml", "report.html"] {
            assert!(out.join(name).is_file(), "there is no {name}");
        }
        (status, report(&out)["cases"][0].clone(), said)
    }

    /// Waits for the end; returns the status and the folder.
    pub(crate) fn end_of_all(self) -> (ExitStatus, TempDir) {
        let (status, folder, _) = self.end_of_everything();
        (status, folder)
    }

    fn end_of_everything(mut self) -> (ExitStatus, TempDir, String) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        let left = labs(self.child.id());
        assert!(left.is_empty(), "{left:?} are left");
        (status, self.folder, rest)
    }
}

/// Names of the labs of a run, by its PID.
pub(crate) fn labs(run: u32) -> Vec<String> {
    let folders = fs::read_dir("/run/plumbline").into_iter().flatten();
    let names = folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let first = format!("run-{run}");
    names
        .filter(|name| *name == first || name.starts_with(&format!("{first}-")))
        .collect()
}

/// An agent that never touches a packet.
pub(crate) fn idle_agent(folder: &Path) -> String {
    let agent = folder.join("agent");
    fs::write(&agent, "#!/bin/sh\ncase $1 in run) exec sleep infinity ;; esac\n").unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    agent.to_string_lossy().into_owned()
}

/// The report in a folder of a run.
pub(crate) fn report(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("report.yaml")).expect("a report");
    serde_saphyr::from_str(&text).expect("a report is YAML")
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

/// The report of a cluster names its agents if a target names their pods, and otherwise states that they are unknown.
pub(super) fn tells_what_ran(of_agents: &serde_json::Value, of_nobody: &serde_json::Value) {
    let software = &of_agents["cluster"]["software"];
    let agents = software["agents"].as_array().unwrap();
    assert_eq!(
        (agents.len(), &agents[0]["name"]),
        (1, &"probe".into()),
        "{software}"
    );
    assert_eq!(
        agents[0]["nodes"],
        serde_json::json!(["node1", "node2"]),
        "{software}"
    );
    assert_eq!(agents[0]["arguments"][0], "serve", "{software}");
    let kernel = &software["nodes"][0]["kernel"];
    assert!(
        software["kubernetes"].is_string() && kernel.is_string(),
        "{software}"
    );
    let software = of_nobody["cluster"]["software"].to_string();
    assert!(software.contains("what agents run: no target"), "{software}");
}
