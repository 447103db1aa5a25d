//! Programs of an earlier load that stay attached to the agent's cgroup.

use std::time::Duration;

use lab::cluster::{Cluster, Place};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use crate::{
    FaultError,
    protocol::{Answer, Attached, Command, HeldProgram, Staging},
};

/// One answer of the helper: system calls, and its wait for what only pins kept.
const ANSWER: Duration = Duration::from_secs(20);
/// How much of the helper's stderr an error shows.
const STDERR_BYTES: u64 = 4096;

/// Programs held by a helper on the node and attached again without link or pin.
///
/// Drop ends the helper's stdin, and the helper detaches what it attached; it does so too when this process is
/// killed, and by itself when it expires.
#[must_use = "the fault heals when this is dropped"]
#[derive(Debug)]
pub struct LeftoverPrograms {
    node: String,
    held: Vec<HeldProgram>,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl LeftoverPrograms {
    /// Takes hold of the programs that are attached to the agent's cgroup of a node. Changes nothing yet.
    pub async fn hold(
        cluster: &dyn Cluster,
        node: &str,
        hooks: &[&str],
        expires: Duration,
    ) -> Result<Self, FaultError> {
        let cgroup = cluster.cgroup_root().to_string_lossy().into_owned();
        let argv = [
            "plumbline",
            "node",
            "hold-programs",
            "--cgroup",
            &cgroup,
            "--hooks",
            &hooks.join(","),
            "--expires-s",
            &expires.as_secs().to_string(),
        ]
        .map(str::to_owned);
        let mut child = cluster
            .exec(
                &Place::Host {
                    node: node.to_owned(),
                },
                &argv,
            )
            .await?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(FaultError::Helper {
                node: node.to_owned(),
                what: "has no pipes".to_owned(),
                stderr: String::new(),
            });
        };
        let stdout = BufReader::new(stdout).lines();
        let mut fault = Self {
            node: node.to_owned(),
            held: Vec::new(),
            stdin: Some(stdin),
            stdout,
            child,
        };
        match fault.answer().await? {
            Answer::Holds(held) => fault.held = held,
            other => return Err(fault.nonsense(&other).await),
        }
        Ok(fault)
    }

    /// What is held.
    #[must_use]
    pub fn held(&self) -> &[HeldProgram] {
        &self.held
    }

    /// Attaches what is held. Returns the ids of what it attached: not of what was there already in the same way.
    pub async fn attach(&mut self, staging: Staging) -> Result<Vec<u32>, FaultError> {
        match self.ask(Command::Attach(staging)).await? {
            Answer::Done(ids) => Ok(ids),
            other => Err(self.nonsense(&other).await),
        }
    }

    /// What is attached now to the cgroup to which it attached, in the order in which it runs.
    pub async fn list(&mut self) -> Result<Vec<Attached>, FaultError> {
        match self.ask(Command::List).await? {
            Answer::Attached(all) => Ok(all),
            other => Err(self.nonsense(&other).await),
        }
    }

    /// Heals, and says so only when it has. Returns the ids that were still attached.
    pub async fn heal(mut self) -> Result<Vec<u32>, FaultError> {
        let ids = match self.ask(Command::Detach).await? {
            Answer::Done(ids) => ids,
            other => return Err(self.nonsense(&other).await),
        };
        self.stdin = None;
        match timeout(ANSWER, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(ids),
            _ => Err(self.helper("has not ended well after it detached").await),
        }
    }

    async fn ask(&mut self, command: Command) -> Result<Answer, FaultError> {
        let mut line = serde_json::to_string(&command).map_err(|error| FaultError::Refused {
            node: self.node.clone(),
            what: name(command).to_owned(),
            why: error.to_string(),
        })?;
        line.push('\n');
        let sent = match &mut self.stdin {
            Some(stdin) => stdin.write_all(line.as_bytes()).await.is_ok(),
            None => false,
        };
        if !sent {
            return Err(self.helper("has ended").await);
        }
        match self.answer().await? {
            Answer::Failed(why) => {
                let what = name(command).to_owned();
                Err(FaultError::Refused {
                    node: self.node.clone(),
                    what,
                    why,
                })
            }
            answer => Ok(answer),
        }
    }

    async fn answer(&mut self) -> Result<Answer, FaultError> {
        let line = match timeout(ANSWER, self.stdout.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(_) => return Err(self.helper("has ended").await),
            Err(_) => return Err(self.helper("does not answer").await),
        };
        match serde_json::from_str(&line) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.helper(&format!("wrote {line:?}: {error}")).await),
        }
    }

    async fn nonsense(&mut self, answer: &Answer) -> FaultError {
        self.helper(&format!("gave an answer to another question: {answer:?}"))
            .await
    }

    async fn helper(&mut self, what: &str) -> FaultError {
        // Its stdin ends, so it does, and what it said is whole.
        self.stdin = None;
        let mut stderr = String::new();
        if let Some(pipe) = self.child.stderr.take() {
            // What can't be read explains nothing.
            let _ = timeout(ANSWER, pipe.take(STDERR_BYTES).read_to_string(&mut stderr)).await;
        }
        FaultError::Helper {
            node: self.node.clone(),
            what: what.to_owned(),
            stderr: stderr.trim().to_owned(),
        }
    }
}

fn name(command: Command) -> &'static str {
    match command {
        Command::Attach(_) => "attach",
        Command::List => "list",
        Command::Detach => "detach",
    }
}
