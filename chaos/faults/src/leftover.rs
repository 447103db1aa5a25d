//! Programs of an earlier load that stay attached to the agent's cgroup.

use std::time::Duration;

use cluster::Cluster;

use crate::{
    FaultError,
    helper::Helper,
    protocol::{Answer, Attached, Command, HeldProgram, Reattached, Staging},
};

/// Programs held by a helper on the node and attached again without link or pin.
///
/// Drop ends the helper's stdin, and the helper detaches what it attached; it does so too when this process is
/// killed, and by itself when it expires.
#[must_use = "the fault heals when this is dropped"]
#[derive(Debug)]
pub struct LeftoverPrograms {
    held: Vec<HeldProgram>,
    helper: Helper,
}

impl LeftoverPrograms {
    /// Takes hold of the programs that are attached to the agent's cgroup of a node. Changes nothing yet.
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
            other => return Err(fault.nonsense(&other).await),
        }
        Ok(fault)
    }

    /// What is held.
    #[must_use]
    pub fn held(&self) -> &[HeldProgram] {
        &self.held
    }

    /// Attaches what is held.
    pub async fn attach(&mut self, staging: Staging) -> Result<Reattached, FaultError> {
        match self.ask(Command::Attach(staging)).await? {
            Answer::Done(ids) => Ok(Reattached::Done(ids)),
            Answer::Refused(why) => Ok(Reattached::Refused(why)),
            other => Err(self.nonsense(&other).await),
        }
    }

    /// Puts links to another cgroup, where nobody is, in the place of those that are pinned and attach what is held; that
    /// cgroup may be removed then. Nothing of it is attached to the agent's cgroup any more. The agent must be down.
    /// Returns where such links are pinned: nowhere, if it pins none.
    pub async fn displace(&mut self, removed: bool) -> Result<Vec<String>, FaultError> {
        match self.ask(Command::Displace { removed }).await? {
            Answer::Pinned(pins) => Ok(pins),
            other => Err(self.nonsense(&other).await),
        }
    }

    /// Where links are pinned that attach what is held to the agent's cgroup. Changes nothing.
    pub async fn pinned(&mut self) -> Result<Vec<String>, FaultError> {
        match self.ask(Command::Pinned).await? {
            Answer::Pinned(pins) => Ok(pins),
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
        self.helper.end().await?;
        Ok(ids)
    }

    async fn ask(&mut self, command: Command) -> Result<Answer, FaultError> {
        match self.helper.ask(&command).await? {
            Answer::Failed(why) => Err(self.helper.refused(name(command), why)),
            answer => Ok(answer),
        }
    }

    async fn nonsense(&mut self, answer: &Answer) -> FaultError {
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
