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

/// Lines of stderr that a pod's status repeats when its container ends.
const LAST_WORDS: usize = 10;
/// Longest line of stderr, in bytes; a longer one is cut in pieces.
const LINE: u64 = 1024;
/// After the end of a container, its stderr may be held open by what it started; the status does not wait for it.
const STDERR_LIMIT: Duration = Duration::from_millis(200);

/// Log files of a pod: what it writes to stdout, and to stderr.
#[derive(Clone, Debug)]
pub(super) struct LogFiles {
    pub(super) stdout: PathBuf,
    stderr: PathBuf,
}

impl LogFiles {
    /// Makes them in a folder; `newest` becomes a link to the stdout of this pod.
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
    /// Nothing until it serves; then whether it is ready.
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
        let (tell, ready) = watch::channel(None);
        let stderr = child
            .stderr
            .take()
            .map(|stderr| tokio::spawn(follow(stderr, log, tell)));
        Ok(Self {
            child,
            begin: Timestamp::now(),
            ready,
            stderr,
        })
    }

    /// When it was started.
    pub(super) fn begin(&self) -> Timestamp {
        self.begin
    }

    /// Whether it is ready, each time that the probe says so on stderr; the first time is when it serves. One that ends
    /// says nothing more.
    pub(super) fn readiness(&self) -> Readiness {
        Readiness {
            said: self.ready.clone(),
        }
    }

    /// Waits until it ends.
    pub(super) async fn wait(&mut self) -> End {
        let status = self.child.wait().await;
        self.end(status).await
    }

    /// SIGTERM.
    pub(super) fn terminate(&self) {
        if let Some(pid) = self.child.id() {
            // It may have ended by itself just now.
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

/// As a shell, and a container runtime, count it.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(signal)
}

/// What a container says of its readiness.
pub(super) struct Readiness {
    said: watch::Receiver<Option<bool>>,
}

impl Readiness {
    /// Waits until it says something other than `known`.
    pub(super) async fn other_than(&mut self, known: Option<bool>) -> bool {
        let other = self.said.wait_for(|said| said.is_some() && *said != known);
        match other.await.map(|said| *said) {
            Ok(said) => said.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Copies stderr into its log, watches for the lines that say whether it is ready, and returns the last lines.
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
        if last.len() > LAST_WORDS {
            last.pop_front();
        }
    }
}
