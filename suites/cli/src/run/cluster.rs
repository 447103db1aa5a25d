//! The cluster of a run: a lab that is there, or one made for it.

use std::{fs, time::Duration};

use anyhow::{Context as _, bail};
use harness::limits::Limits;
use lab::{
    cluster::Cluster as _,
    embedded::{AgentCommand, ControlPlane, IpFamilies, LabCluster, LabConfig, Lifetime, sibling},
};

use crate::lab::TargetArgs;

/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(50);
/// Lines shown of the log of one that has ended.
const SAID: usize = 10;

/// What is to be tested, and where.
#[derive(Debug)]
pub(super) enum Target {
    /// Whatever runs in a lab that is up.
    Running(String),
    /// A target of the command line.
    Named(TargetArgs),
    /// An agent with one known bug.
    Mutant(String),
}

/// A lab, and whether it is ours to take down.
pub(super) struct RunCluster {
    pub(super) name: String,
    pub(super) lab: LabCluster,
    is_ours: bool,
}

impl Target {
    pub(super) fn new(lab: Option<String>, target: TargetArgs, mutant: Option<String>) -> Self {
        match (lab, mutant) {
            (Some(name), _) => Self::Running(name),
            (None, Some(name)) => Self::Mutant(name),
            (None, None) => Self::Named(target),
        }
    }

    /// As options of the command line.
    pub(super) fn options(&self) -> String {
        match self {
            Self::Running(name) => format!(" --lab {name}"),
            Self::Named(target) => target.options(),
            Self::Mutant(name) => format!(" --mutant {name}"),
        }
    }

    /// Attaches to the lab, or makes one of these families and nodes. With `keep` it outlives this process.
    pub(super) async fn cluster(
        &self,
        families: IpFamilies,
        nodes: u8,
        limits: &Limits,
        keep: bool,
    ) -> anyhow::Result<RunCluster> {
        let agent = match self {
            Self::Running(name) => {
                let lab = LabCluster::attach(name).await?;
                return Ok(RunCluster {
                    name: name.clone(),
                    lab,
                    is_ours: false,
                });
            }
            Self::Named(target) => target.agent()?,
            Self::Mutant(name) => mutant(name)?,
        };
        let name = format!("run-{}", std::process::id());
        let config = LabConfig {
            name: name.clone(),
            nodes,
            families,
            control_plane: ControlPlane::default(),
            agent,
            plumbline: sibling("plumbline")?,
        };
        let lifetime = if keep {
            Lifetime::Detached
        } else {
            Lifetime::WithCaller
        };
        let lab = LabCluster::up(&config, lifetime, |step| eprintln!("  {step}")).await?;
        if let Err(why) = agents_run(&lab, limits.agent_lasts).await {
            lab.down().await?;
            return Err(why);
        }
        Ok(RunCluster {
            name,
            lab,
            is_ours: !keep,
        })
    }
}

impl RunCluster {
    pub(super) async fn end(self) -> anyhow::Result<()> {
        if self.is_ours {
            self.lab.down().await?;
        } else {
            eprintln!(
                "the lab {} stays up: `plumbline lab down --name {}`",
                self.name, self.name
            );
        }
        Ok(())
    }
}

/// Waits until every agent of a new lab is ready, or has at least lasted: verdicts on one that ends by itself at once,
/// for a wrong option say, would be about nothing.
async fn agents_run(lab: &LabCluster, lasts: Duration) -> anyhow::Result<()> {
    let nodes = &lab.describe().nodes;
    let all_ready = async {
        loop {
            let mut ready = 0;
            for node in nodes {
                let agent = lab.agent(&node.name).await?;
                if let Some(exit) = agent.last_exit {
                    bail!(
                        "the agent of {} does not run, it ended with {exit}; the last that it said:\n{}",
                        node.name,
                        said_last(lab, &node.name)
                    );
                }
                ready += usize::from(agent.ready == Some(true));
            }
            if ready == nodes.len() {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    // An agent without /readyz only has to last.
    tokio::time::timeout(lasts, all_ready).await.unwrap_or(Ok(()))
}

fn said_last(lab: &LabCluster, node: &str) -> String {
    let path = lab.logs().join(format!("agent-{node}.log"));
    let log = fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", path.display()));
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(SAID)..].join("\n")
}

fn mutant(name: &str) -> anyhow::Result<AgentCommand> {
    let program = sibling("plumbline-mutant")
        .context("mutants are a program of their own: cargo build --package mutants")?;
    let mut agent = AgentCommand::of_target("reference", Some(&program))?;
    agent.argv.extend(["--mutant".to_owned(), name.to_owned()]);
    agent.label = format!("mutant:{name}");
    Ok(agent)
}
