//! A helper on a node: a process of `plumbline node …` that reads commands and writes answers, a line of JSON each.

use std::time::Duration;

use cluster::{Cluster, Place};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use crate::FaultError;

/// Limit for one answer. It includes the helper's wait until the kernel has ended links.
const ANSWER: Duration = Duration::from_secs(20);
/// Most bytes of the helper's stderr in an error.
const STDERR_BYTES: u64 = 4096;

/// A running helper. Dropping it closes its stdin, upon which the helper undoes what it did and ends. The same happens if
/// this process is killed.
#[derive(Debug)]
pub(crate) struct Helper {
    node: String,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Helper {
    /// Starts `plumbline node` with these arguments, on a node.
    pub(crate) async fn start(cluster: &Cluster, node: &str, arguments: &[&str]) -> Result<Self, FaultError> {
        let argv: Vec<String> = [&["plumbline", "node"], arguments]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect();
        let place = Place::Host {
            node: node.to_owned(),
        };
        let mut child = cluster.exec(&place, &argv).await?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(FaultError::Helper {
                node: node.to_owned(),
                what: "has no pipes".to_owned(),
                stderr: String::new(),
            });
        };
        Ok(Self {
            node: node.to_owned(),
            stdin: Some(stdin),
            stdout: BufReader::new(stdout).lines(),
            child,
        })
    }

    /// Sends a command. Returns the answer.
    pub(crate) async fn ask<C: Serialize, A: DeserializeOwned>(
        &mut self,
        command: &C,
    ) -> Result<A, FaultError> {
        let mut line = match serde_json::to_string(command) {
            Ok(line) => line,
            Err(error) => return Err(self.broken(&format!("can't be sent a command: {error}")).await),
        };
        line.push('\n');
        let sent = match &mut self.stdin {
            Some(stdin) => stdin.write_all(line.as_bytes()).await.is_ok(),
            None => false,
        };
        if !sent {
            return Err(self.broken("has ended").await);
        }
        self.answer().await
    }

    /// The next answer.
    pub(crate) async fn answer<A: DeserializeOwned>(&mut self) -> Result<A, FaultError> {
        let line = match timeout(ANSWER, self.stdout.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(_) => return Err(self.broken("has ended").await),
            Err(_) => return Err(self.broken("does not answer").await),
        };
        match serde_json::from_str(&line) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.broken(&format!("wrote {line:?}: {error}")).await),
        }
    }

    /// The error of a command that failed.
    pub(crate) fn refused(&self, what: &str, why: String) -> FaultError {
        FaultError::Refused {
            node: self.node.clone(),
            what: what.to_owned(),
            why,
        }
    }

    /// The error of a helper that does not answer as expected. Ends it.
    pub(crate) async fn broken(&mut self, what: &str) -> FaultError {
        // Closing stdin ends it, so that its stderr is complete.
        self.stdin = None;
        let mut stderr = String::new();
        if let Some(pipe) = self.child.stderr.take() {
            // Best effort: without stderr, the error has no explanation.
            let _ = timeout(ANSWER, pipe.take(STDERR_BYTES).read_to_string(&mut stderr)).await;
        }
        FaultError::Helper {
            node: self.node.clone(),
            what: what.to_owned(),
            stderr: stderr.trim().to_owned(),
        }
    }

    /// Ends it, and waits until it has undone what it did.
    pub(crate) async fn end(mut self) -> Result<(), FaultError> {
        self.stdin = None;
        match timeout(ANSWER, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            _ => Err(self.broken("has not ended well").await),
        }
    }
}
