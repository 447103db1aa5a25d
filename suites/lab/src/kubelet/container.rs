//! One run of a pod's container.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use cluster::spawn;
use k8s_openapi::jiff::Timestamp;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use probe::serve::{NOT_READY, READY};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStderr},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

use super::{sandbox::Sandbox, status::End};
use crate::{LabError, error::io_error};

/// Lines of stderr that become the termination message.
const STDERR_LINES: usize = 10;
/// Longest line of stderr, in bytes; a longer one is split.
const LINE: u64 = 1024;
/// Descendants of a container may keep its stderr open after its end; the status does not wait for it.
const STDERR_LIMIT: Duration = Duration::from_millis(200);

/// Log files of a pod: stdout and stderr.
#[derive(Clone, Debug)]
pub(super) struct LogFiles {
    pub(super) stdout: PathBuf,
    stderr: PathBuf,
}

impl LogFiles {
    /// Creates the files in a folder; `newest` becomes a symlink to the stdout of this pod.
    pub(super) fn create(
        folder: &Path,
        namespace: &str,
        pod: &str,
        uid: &str,
        newest: &Path,
    ) -> io::Result<Self> {
        let stdout = folder.join(format!("{namespace}_{pod}_{uid}.log"));
        let stderr = folder.join(format!("{namespace}_{pod}_{uid}.stderr.log"));
        File::create(&stdout)?;
        let fresh = folder.join(format!("{uid}.link"));
        symlink(stdout.file_name().unwrap_or_default(), &fresh)?;
        std::fs::rename(&fresh, newest)?;
        Ok(Self { stdout, stderr })
    }
}

/// A container that runs, or has just ended.
pub(super) struct Container {
    child: Child,
    begin: Timestamp,
    /// `None` until the probe serves; then whether it is ready.
    ready: watch::Receiver<Option<bool>>,
    stderr: Option<JoinHandle<VecDeque<String>>>,
}

impl Container {
    /// Starts the probe with these arguments and this environment in a sandbox.
    pub(super) async fn start(
        program: &Path,
        args: &[String],
        environment: &[(&'static str, String)],
        sandbox: &Sandbox,
        logs: &LogFiles,
    ) -> Result<Self, LabError> {
        let open = |path: &Path| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map_err(io_error(format!("open {}", path.display())))
        };
        let mut command = Command::new(program);
        command.arg("probe").args(args);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::null())
            .stdout(open(&logs.stdout)?)
            .stderr(Stdio::piped());
        let log = open(&logs.stderr)?;
        let failed = io_error(format!("start {} probe", program.display()));
        let mut child = spawn::spawn(command, sandbox.placement()?)
            .await
            .map_err(failed)?;
        let (sender, ready) = watch::channel(None);
        let stderr = child
            .stderr
            .take()
            .map(|stderr| tokio::spawn(follow(stderr, log, sender)));
        Ok(Self {
            child,
            begin: Timestamp::now(),
            ready,
            stderr,
        })
    }

    pub(super) fn begin(&self) -> Timestamp {
        self.begin
    }

    /// Readiness that the probe reports on stderr, first when it serves. A container that ends sends no further
    /// change.
    pub(super) fn readiness(&self) -> Readiness {
        Readiness {
            reported: self.ready.clone(),
        }
    }

    /// Waits for the end of the container.
    pub(super) async fn wait(&mut self) -> End {
        let status = self.child.wait().await;
        self.end(status).await
    }

    pub(super) fn terminate(&self) {
        if let Some(pid) = self.child.id() {
            // The process may have ended by itself.
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).ok();
        }
    }

    async fn end(&mut self, status: io::Result<ExitStatus>) -> End {
        let words = match self.stderr.take() {
            Some(mut stderr) => match timeout(STDERR_LIMIT, &mut stderr).await {
                Ok(words) => words.unwrap_or_default(),
                Err(_) => {
                    stderr.abort();
                    VecDeque::new()
                }
            },
            None => VecDeque::new(),
        };
        let message = Vec::from(words).join("\n");
        let (begin, end) = (self.begin, Timestamp::now());
        match status {
            Ok(status) => End {
                code: exit_code(status),
                signal: status.signal(),
                begin,
                end,
                message,
            },
            Err(error) => End {
                code: -1,
                signal: None,
                begin,
                end,
                message: error.to_string(),
            },
        }
    }
}

/// Exit code as shells and container runtimes count it.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(signal)
}

/// Readiness reports of a container.
pub(super) struct Readiness {
    reported: watch::Receiver<Option<bool>>,
}

impl Readiness {
    /// Waits for a report that differs from `known`.
    pub(super) async fn other_than(&mut self, known: Option<bool>) -> bool {
        let other = self
            .reported
            .wait_for(|reported| reported.is_some() && *reported != known);
        match other.await.map(|reported| *reported) {
            Ok(reported) => reported.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Copies stderr into its log, reads readiness reports, and returns the last lines.
async fn follow(stderr: ChildStderr, mut log: File, ready: watch::Sender<Option<bool>>) -> VecDeque<String> {
    let mut last = VecDeque::new();
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut stderr).take(LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return last,
            Ok(_) => {}
        }
        if let Err(error) = log.write_all(&line) {
            tracing::warn!(%error, "a pod's stderr could not be logged");
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.starts_with(READY) {
            ready.send_replace(Some(true));
        } else if line.starts_with(NOT_READY) {
            ready.send_replace(Some(false));
        }
        if line.is_empty() {
            continue;
        }
        last.push_back(line);
        if last.len() > STDERR_LINES {
            last.pop_front();
        }
    }
}
