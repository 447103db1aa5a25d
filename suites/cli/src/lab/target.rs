//! `--target` and `--agent`: what is under test in a lab that is made, or installed in a cluster that is there.

use std::path::PathBuf;

use cluster::target::{Target, TargetError};
use existing::{Agents, Tested};
use lab::{AgentCommand, LabError};

/// The target that is meant where none is named.
const DEFAULT: &str = "reference";

/// What runs on each node.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// What is under test: reference (the default), kube-proxy-iptables, kube-proxy-nftables, or the path of a file of
    /// your own (`plumbline targets show reference` is a beginning). In a cluster that is there, what is installed in it
    /// (none: whatever it is): its features, its deviations, and where its agents are looked at
    #[arg(long, value_name = "NAME|FILE")]
    target: Option<String>,
    /// The program under test instead of the target's own, which is looked for beside this one and on the PATH
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

impl TargetArgs {
    /// Name of the target.
    pub(crate) fn name(&self) -> &str {
        self.target.as_deref().unwrap_or(DEFAULT)
    }

    /// The agent that they name.
    ///
    /// # Errors
    /// There is no such target, or no such program.
    pub(crate) fn agent(&self) -> Result<AgentCommand, LabError> {
        let mut agent = AgentCommand::of_target(self.name(), self.agent.as_deref())?;
        if let (None, Some(path)) = (&self.target, &self.agent) {
            agent.label = format!("agent:{}", path.display());
        }
        Ok(agent)
    }

    /// What it says of itself, for a cluster in which it is installed; of whatever is there, if none is named, nothing is
    /// known.
    ///
    /// # Errors
    /// There is no such target.
    pub(crate) fn tested(&self) -> Result<Tested, TargetError> {
        let Some(name) = &self.target else {
            return Ok(Tested {
                label: "installed".to_owned(),
                ..Tested::default()
            });
        };
        let target = Target::find(name)?;
        Ok(Tested {
            label: name.clone(),
            features: target.features,
            deviations: target.deviations,
            agents: target.cluster.map(Agents::from),
            ..Tested::default()
        })
    }

    /// Whether a program is named.
    pub(crate) fn has_program(&self) -> bool {
        self.agent.is_some()
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
