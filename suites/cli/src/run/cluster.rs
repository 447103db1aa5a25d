//! The cluster of a run: a lab that is there, or one made for it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use lab::{
    cluster::Cluster as _,
    embedded::{AgentCommand, LabCluster, LabConfig, Lifetime, sibling},
};

/// What most rows ask for at most.
const NODES: u8 = 2;

/// How long an agent that does not say that it is ready has to last before the first case begins.
const LASTS: Duration = Duration::from_secs(3);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(50);
/// Lines shown of the log of one that has ended.
const SAID: usize = 10;

/// What is to be tested, and where.
#[derive(Debug)]
pub(super) enum Target {
    /// Whatever runs in a lab that is up.
    Running(String),
    /// The reference agent.
    Reference,
    /// Another agent with the same command line.
    Agent(PathBuf),
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
    pub(super) fn new(lab: Option<String>, agent: Option<PathBuf>, mutant: Option<String>) -> Self {
        match (lab, agent, mutant) {
            (Some(name), ..) => Self::Running(name),
            (None, Some(path), _) => Self::Agent(path),
            (None, None, Some(name)) => Self::Mutant(name),
            (None, None, None) => Self::Reference,
        }
    }

    /// As options of the command line.
    pub(super) fn options(&self) -> String {
        match self {
            Self::Running(name) => format!(" --lab {name}"),
            Self::Reference => String::new(),
            Self::Agent(path) => format!(" --agent {}", path.display()),
            Self::Mutant(name) => format!(" --mutant {name}"),
        }
    }

    /// Attaches to the lab, or makes one. With `keep` it outlives this process.
    pub(super) async fn cluster(&self, keep: bool) -> anyhow::Result<RunCluster> {
        if let Self::Running(name) = self {
            let lab = LabCluster::attach(name).await?;
            return Ok(RunCluster {
                name: name.clone(),
                lab,
                is_ours: false,
            });
        }
        let name = format!("run-{}", std::process::id());
        let agent = match self {
            Self::Running(_) | Self::Reference => AgentCommand::reference(&sibling("reference-agent")?),
            Self::Agent(path) => agent(path)?,
            Self::Mutant(name) => mutant(name)?,
        };
        let config = LabConfig {
            name: name.clone(),
            nodes: NODES,
            agent,
            plumbline: sibling("plumbline")?,
        };
        let lifetime = if keep {
            Lifetime::Detached
        } else {
            Lifetime::WithCaller
        };
        let lab = LabCluster::up(&config, lifetime, |step| eprintln!("  {step}")).await?;
        if let Err(why) = agents_run(&lab).await {
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
async fn agents_run(lab: &LabCluster) -> anyhow::Result<()> {
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
    tokio::time::timeout(LASTS, all_ready).await.unwrap_or(Ok(()))
}

fn said_last(lab: &LabCluster, node: &str) -> String {
    let path = lab.logs().join(format!("agent-{node}.log"));
    let log = fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", path.display()));
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(SAID)..].join("\n")
}

fn agent(path: &Path) -> anyhow::Result<AgentCommand> {
    let path = path
        .canonicalize()
        .with_context(|| format!("there is no agent {}: expected a program", path.display()))?;
    let argv = vec![path.to_string_lossy().into_owned()];
    Ok(AgentCommand {
        label: format!("agent:{}", path.display()),
        argv,
    })
}

fn mutant(name: &str) -> anyhow::Result<AgentCommand> {
    let program = sibling("plumbline-mutant")
        .context("mutants are a program of their own: cargo build --package mutants")?;
    let argv = vec![
        program.to_string_lossy().into_owned(),
        "--mutant".to_owned(),
        name.to_owned(),
    ];
    Ok(AgentCommand {
        label: format!("mutant:{name}"),
        argv,
    })
}
