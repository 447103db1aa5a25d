//! `--target` and `--agent`: what is under test in a lab that is made.

use std::path::PathBuf;

use lab::embedded::{AgentCommand, LabError};

/// The target that is meant where none is named.
const DEFAULT: &str = "reference";

/// What runs on each node.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// What is under test: reference (the default), kube-proxy-iptables, kube-proxy-nftables, or the path of a file as
    /// those of suites/targets
    #[arg(long, value_name = "NAME|FILE")]
    target: Option<String>,
    /// The program under test instead of the target's own, which is looked for beside this one and on the PATH
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

impl TargetArgs {
    /// The agent that they name.
    ///
    /// # Errors
    /// There is no such target, or no such program.
    pub(crate) fn agent(&self) -> Result<AgentCommand, LabError> {
        let name = self.target.as_deref().unwrap_or(DEFAULT);
        let mut agent = AgentCommand::of_target(name, self.agent.as_deref())?;
        if let (None, Some(path)) = (&self.target, &self.agent) {
            agent.label = format!("agent:{}", path.display());
        }
        Ok(agent)
    }

    /// As options of the command line.
    pub(crate) fn options(&self) -> String {
        let target = self.target.iter().map(|target| format!(" --target {target}"));
        let agent = self
            .agent
            .iter()
            .map(|path| format!(" --agent {}", path.display()));
        target.chain(agent).collect()
    }
}
