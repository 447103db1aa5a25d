//! `--target` and `--agent`: the implementation under test in a new lab, or installed in an existing cluster.

use std::path::{Path, PathBuf};

use cluster::target::{Target, TargetError};
use existing::{Agents, Tested};
use lab::{AgentCommand, LabError};

use crate::targets::named;

/// The default target.
const DEFAULT: &str = "reference";

/// The program that runs on each node.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The target")]
pub(crate) struct TargetArgs {
    /// The target under test: reference (the default), kube-proxy-iptables, kube-proxy-nftables, or the path of a
    /// target file (`plumbline targets show reference` prints one to start from). For an existing cluster, the target
    /// that is installed there; without this option nothing is known about it. The target names its features, its
    /// deviations, and where its agents are found
    #[arg(long, value_name = "NAME|FILE", value_parser = named)]
    target: Option<String>,
    /// The program under test, instead of the target's own, which is searched beside this program and on the PATH
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

impl TargetArgs {
    /// Name of the target.
    pub(crate) fn name(&self) -> &str {
        self.target.as_deref().unwrap_or(DEFAULT)
    }

    /// The agent that the options name.
    ///
    /// # Errors
    /// There is no such target or program.
    pub(crate) fn agent(&self) -> Result<AgentCommand, LabError> {
        let mut agent = AgentCommand::of_target(self.name(), self.agent.as_deref())?;
        if let (None, Some(path)) = (&self.target, &self.agent) {
            agent.label = format!("agent:{}", path.display());
        }
        Ok(agent)
    }

    /// The target's description, for a cluster in which it is installed. If no target is named, nothing is known about
    /// the implementation.
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
            most_endpoints: target.most_endpoints,
            agents: target.cluster.map(Agents::from),
            ..Tested::default()
        })
    }

    /// Whether an option names a program.
    pub(crate) fn has_program(&self) -> bool {
        self.agent.is_some()
    }

    /// The options in an image that has the files which they name beside the program: in its root folder.
    pub(crate) fn in_image(&self) -> Vec<String> {
        let inside = |path: &Path| match path.file_name() {
            Some(name) => format!("/{}", name.display()),
            None => path.display().to_string(),
        };
        let target = self.target.iter().map(|target| match Target::file(target) {
            Some(_) => target.clone(),
            None => inside(Path::new(target)),
        });
        let target = target.flat_map(|target| ["--target".to_owned(), target]);
        let agent = self.agent.iter().map(|agent| inside(agent));
        target
            .chain(agent.flat_map(|agent| ["--agent".to_owned(), agent]))
            .collect()
    }

    /// The options as text for the command line.
    pub(crate) fn options(&self) -> String {
        let target = self.target.iter().map(|target| format!(" --target {target}"));
        let agent = self
            .agent
            .iter()
            .map(|path| format!(" --agent {}", path.display()));
        target.chain(agent).collect()
    }
}
