//! A running `plumbline watch`.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use testing::patience::LIMIT;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The program, and its output lines.
pub(crate) struct Watching {
    child: Child,
    lines: UnboundedReceiver<String>,
    seen: Vec<String>,
    _folder: TempDir,
}

impl Watching {
    pub(crate) fn start(kubeconfig: &str, service: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args(["watch", service, "--json", "--kubeconfig"])
            .arg(file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = unbounded_channel();
        // Ends with the program or the test.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
            _folder: folder,
        }
    }

    /// Reads until an event of this kind has a change that contains this. Each event is returned once.
    pub(crate) async fn until(&mut self, event: &str, kind: &str, part: &str) -> Value {
        let is_it = |line: &str| -> Option<Value> {
            let value: Value = serde_json::from_str(line).expect("a line is JSON");
            let mut changes = value["changes"].as_array()?.iter().filter_map(Value::as_str);
            let found =
                value["event"] == event && value["kind"] == kind && changes.any(|one| one.contains(part));
            found.then_some(value)
        };
        // The two kinds arrive independently: an event may have been read while waiting for another.
        if let Some(at) = self.seen.iter().position(|line| is_it(line).is_some()) {
            let line = self.seen.remove(at);
            return is_it(&line).expect("found");
        }
        loop {
            let line = tokio::time::timeout(LIMIT, self.lines.recv()).await;
            let Ok(Some(line)) = line else {
                panic!(
                    "no {event} of {kind} with {part:?}; other events: {:#?}",
                    self.seen
                );
            };
            match is_it(&line) {
                Some(value) => return value,
                None => self.seen.push(line),
            }
        }
    }

    /// Interrupts the program, which then exits in order.
    pub(crate) fn end(mut self) {
        kill(
            Pid::from_raw(i32::try_from(self.child.id()).unwrap()),
            Signal::SIGINT,
        )
        .unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Waits for the end; returns exit code and output.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
