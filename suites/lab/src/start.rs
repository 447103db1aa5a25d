//! Starts a supervisor.

use std::{
    env, io,
    process::{Command, Stdio},
};

use cluster::spawn;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin},
    time::{Instant, timeout_at},
};

use super::{
    LIMITS, LabConfig, LabError,
    dir::{LabDir, tail},
    error::io_error,
    protocol::StartEvent,
    supervisor::DETACH,
};

/// Binds a lab to this process: the lab goes down when this is dropped.
#[derive(Debug)]
pub(super) struct SupervisorGuard {
    stdin: ChildStdin,
    child: Child,
}

/// Log filter of `plumbline` (tracing's syntax). A supervisor logs more by default, as its log is read after
/// failures.
const LOG: &str = "PLUMBLINE_LOG";

impl SupervisorGuard {
    /// Starts a supervisor and waits until its lab is up.
    pub(super) async fn start(config: &LabConfig, mut progress: impl FnMut(&str)) -> Result<Self, LabError> {
        let mut command = Command::new(&config.plumbline);
        command.args(["lab", "supervise"]);
        if env::var_os(LOG).is_none() {
            command.env(LOG, "info");
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let failed = || io_error(format!("start {} lab supervise", config.plumbline.display()));
        let mut child = spawn::leader(command).map_err(failed())?;
        let broken = || failed()(io::Error::other("it has no pipes"));
        let mut stdin = child.stdin.take().ok_or_else(broken)?;
        let stdout = child.stdout.take().ok_or_else(broken)?;
        let mut line = serde_json::to_vec(config).map_err(|error| failed()(error.into()))?;
        line.push(b'\n');
        stdin.write_all(&line).await.map_err(failed())?;

        // More than the lab's own limit, which gives the better message.
        let limit = config.up_limit() + LIMITS.down;
        let deadline = Instant::now() + limit;
        let mut events = BufReader::new(stdout.take(LIMITS.control_bytes)).lines();
        let gave_up = |why: String| LabError::Start {
            name: config.name.clone(),
            why,
        };
        loop {
            let line = timeout_at(deadline, events.next_line())
                .await
                .map_err(|_| LabError::Limit {
                    what: format!("the start of lab {:?}", config.name),
                    limit,
                    hint: tail(&LabDir::new(&config.name).supervisor_log()),
                })?;
            let Some(line) = line.map_err(failed())? else {
                let status = child.wait().await.map_err(failed())?;
                return Err(gave_up(format!("its supervisor ended with {status}")));
            };
            match serde_json::from_str(&line) {
                Ok(StartEvent::Step(step)) => progress(&step),
                Ok(StartEvent::Up) => return Ok(Self { stdin, child }),
                Ok(StartEvent::AlreadyUp { pid }) => {
                    return Err(LabError::AlreadyUp {
                        name: config.name.clone(),
                        pid,
                    });
                }
                Ok(StartEvent::Starting { pid }) => {
                    return Err(LabError::Starting {
                        name: config.name.clone(),
                        pid,
                    });
                }
                Ok(StartEvent::Failed(why)) => {
                    // The supervisor removes its resources before it reports the failure.
                    drop(child.wait().await);
                    return Err(gave_up(why));
                }
                Err(error) => return Err(gave_up(format!("its supervisor said {line:?}: {error}"))),
            }
        }
    }

    /// Lets the lab run on after the end of this process.
    pub(super) async fn detach(mut self) -> Result<(), LabError> {
        let line = format!("{DETACH}\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .map_err(io_error("detach the lab"))
    }

    /// Waits for the end of a supervisor that is going down.
    pub(super) async fn ended(mut self) -> Result<(), LabError> {
        self.child
            .wait()
            .await
            .map(drop)
            .map_err(io_error("wait for the supervisor"))
    }
}
