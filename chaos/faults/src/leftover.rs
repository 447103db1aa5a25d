//! Programs of an earlier load that stay attached to the agent's cgroup.

use std::time::Duration;

use cluster::Cluster;

use crate::{
    FaultError,
    helper::Helper,
    protocol::{Answer, Attached, Command, HeldProgram, Reattached, Staging},
};

/// Socket programs that a helper on the node keeps loaded, and attaches again without link or pin.
///
/// Dropping it makes the helper detach what it attached. The helper does the same if this process is killed, and when it
/// expires.
#[must_use = "the fault heals when this is dropped"]
#[derive(Debug)]
pub struct LeftoverPrograms {
    held: Vec<HeldProgram>,
    helper: Helper,
}

impl LeftoverPrograms {
    /// Opens the programs that are attached to the agent's cgroup of a node, which keeps them loaded.
    pub async fn hold(
        cluster: &Cluster,
        node: &str,
        hooks: &[&str],
        expires: Duration,
    ) -> Result<Self, FaultError> {
        let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
        let arguments = [
            "hold-programs",
            "--cgroup",
            &cgroup,
            "--hooks",
            &hooks.join(","),
            "--expires-s",
            &expires.as_secs().to_string(),
        ];
        let helper = Helper::start(cluster, node, &arguments).await?;
        let mut fault = Self {
            held: Vec::new(),
            helper,
        };
        match fault.helper.answer().await? {
            Answer::Holds(held) => fault.held = held,
            other => return Err(fault.unexpected(&other).await),
        }
        Ok(fault)
    }

    /// The programs that are held.
    #[must_use]
    pub fn held(&self) -> &[HeldProgram] {
        &self.held
    }

    /// Attaches the held programs.
    pub async fn attach(&mut self, staging: Staging) -> Result<Reattached, FaultError> {
        match self.ask(Command::Attach(staging)).await? {
            Answer::Done(ids) => Ok(Reattached::Done(ids)),
            Answer::Refused(why) => Ok(Reattached::Refused(why)),
            other => Err(self.unexpected(&other).await),
        }
    }

    /// Replaces the pinned links that attach the held programs by links to an empty cgroup, which is removed afterwards if
    /// `removed`. Nothing of them stays attached to the agent's cgroup. The agent must be down. Returns the pins.
    pub async fn displace(&mut self, removed: bool) -> Result<Vec<String>, FaultError> {
        match self.ask(Command::Displace { removed }).await? {
            Answer::Pinned(pins) => Ok(pins),
            other => Err(self.unexpected(&other).await),
        }
    }

    /// Pins of links that attach the held programs to the agent's cgroup. Changes nothing.
    pub async fn pinned(&mut self) -> Result<Vec<String>, FaultError> {
        match self.ask(Command::Pinned).await? {
            Answer::Pinned(pins) => Ok(pins),
            other => Err(self.unexpected(&other).await),
        }
    }

    /// Programs that are attached to the target cgroup now, in the order in which they run.
    pub async fn list(&mut self) -> Result<Vec<Attached>, FaultError> {
        match self.ask(Command::List).await? {
            Answer::Attached(all) => Ok(all),
            other => Err(self.unexpected(&other).await),
        }
    }

    /// Heals, and waits until that is done. Returns the ids of programs that were still attached.
    pub async fn heal(mut self) -> Result<Vec<u32>, FaultError> {
        let ids = match self.ask(Command::Detach).await? {
            Answer::Done(ids) => ids,
            other => return Err(self.unexpected(&other).await),
        };
        self.helper.end().await?;
        Ok(ids)
    }

    async fn ask(&mut self, command: Command) -> Result<Answer, FaultError> {
        match self.helper.ask(&command).await? {
            Answer::Failed(why) => Err(self.helper.refused(name(command), why)),
            answer => Ok(answer),
        }
    }

    async fn unexpected(&mut self, answer: &Answer) -> FaultError {
        let what = format!("gave an answer to another question: {answer:?}");
        self.helper.broken(&what).await
    }
}

fn name(command: Command) -> &'static str {
    match command {
        Command::Attach(_) => "attach",
        Command::List => "list",
        Command::Displace { .. } => "displace",
        Command::Pinned => "find the pins of",
        Command::Detach => "detach",
    }
}
