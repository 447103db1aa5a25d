//! Commands in places of a cluster that change what is there, as a fault does.

use cluster::Place;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

use crate::{context::Context, verdict::Halt};

/// A shell that waits in a place, so that its network has a name. It ends with this.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct Waiting {
    /// Its process id, as processes on nodes of the same machine see it.
    pub pid: u32,
    _child: Child,
}

impl Waiting {
    /// Starts a shell in a place that only waits.
    ///
    /// # Errors
    /// If it does not print its process id.
    pub async fn start(cx: &Context, place: &Place) -> Result<Self, Halt> {
        let argv = ["sh", "-c", "echo $$; exec cat"].map(str::to_owned);
        let mut child = cx.cluster().exec(place, &argv).await?;
        child.stderr = None;
        let failed = || Halt::Harness(format!("a shell {place} does not print its process id"));
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().ok_or_else(failed)?);
        let read = tokio::time::timeout(cx.limits().endpoints, out.read_line(&mut line)).await;
        read.map_err(|_| failed())?.map_err(|_| failed())?;
        let pid = line.trim().parse().map_err(|_| failed())?;
        Ok(Self { pid, _child: child })
    }
}

/// Runs a shell's commands in a place, to their end, and notes them as a fault.
///
/// # Errors
/// One of them fails: the last one's words.
pub async fn change(cx: &Context, place: &Place, commands: &str) -> Result<(), Halt> {
    cx.fault(&format!("{place}: {commands}"));
    let argv = ["sh", "-ec", commands].map(str::to_owned);
    let child = cx.cluster().exec(place, &argv).await?;
    let failed = |why: String| Halt::Harness(format!("failed to run {commands:?} {place}: {why}"));
    let output = tokio::time::timeout(cx.limits().endpoints, child.wait_with_output()).await;
    let output = output.map_err(|_| failed("it does not end".to_owned()))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(())
}
