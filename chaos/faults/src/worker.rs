//! A helper's side on the node: commands on stdin, answers on stdout, and its end.
//!
//! The first process only waits for a second one, which does the work and shares its stdin and stdout. A container runtime or
//! lab that kills the first does not kill the one that has to clean up.

use std::{
    env,
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, Stdio},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, stdin, stdout},
    process,
    signal::unix::{SignalKind, signal},
};

/// Arguments of every helper.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HelperArguments {
    /// Undoes what it did and ends after this many seconds.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    expires_s: u64,
    /// Does the work itself, without a second process.
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

/// Starts the worker in a process group of its own and waits for it.
pub(crate) async fn supervise() -> Result<ExitCode, String> {
    let mut worker = process::Command::new("/proc/self/exe")
        .arg0("plumbline")
        .args(env::args_os().skip(1))
        .arg("--worker")
        .stdin(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("failed to start the worker: {error}"))?;
    let status = worker
        .wait()
        .await
        .map_err(|error| format!("failed to wait for the worker: {error}"))?;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Writes the first answer and then answers commands, until stdin ends, on SIGTERM, or when it expires. Returns the reason.
pub(crate) async fn serve<C: DeserializeOwned, A: Serialize>(
    arguments: &HelperArguments,
    first: &A,
    mut answer: impl AsyncFnMut(Result<C, String>) -> A,
) -> Result<&'static str, String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    write(first).await?;
    let mut lines = BufReader::new(stdin()).lines();
    let expiry = tokio::time::sleep(Duration::from_secs(arguments.expires_s));
    tokio::pin!(expiry);
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = &mut expiry => return Ok("it expired"),
            _ = terminate.recv() => return Ok("it got SIGTERM"),
        };
        let Ok(Some(line)) = line else {
            return Ok("its stdin ended");
        };
        let command = serde_json::from_str(&line).map_err(|error| format!("{line:?} is no command: {error}"));
        if write(&answer(command).await).await.is_err() {
            return Ok("its answers are not read");
        }
    }
}

async fn write(answer: &impl Serialize) -> Result<(), String> {
    let mut line = serde_json::to_string(answer).map_err(|error| error.to_string())?;
    line.push('\n');
    let mut stdout = stdout();
    stdout
        .write_all(line.as_bytes())
        .await
        .map_err(|error| error.to_string())?;
    stdout.flush().await.map_err(|error| error.to_string())
}
