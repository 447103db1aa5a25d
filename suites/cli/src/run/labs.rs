//! The labs of a run: made for it, each with a name of its own, or one that is there.

use std::{
    fs,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use cluster::{
    Cluster,
    software::{Software, printed_version},
};
use harness::{case::Case, cleanup::Made, report::CaseReport};
use lab::{AgentCommand, ControlPlane, IpFamilies, LabCluster, LabConfig, Lifetime, sibling};

use super::{
    machine,
    process::{self, At, End, Settings},
    progress::Line,
    schedule::Site,
    spent::LabsSpent,
};
use crate::{cluster::ClusterRef, lab::TargetArgs, quick::marked};

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
}

/// The labs of a run.
#[derive(Debug)]
pub(super) struct Labs<'a> {
    settings: &'a Settings,
    from: From,
    /// How many were made.
    made: AtomicUsize,
    /// Names of those that stay up.
    stay: Mutex<Vec<String>>,
    /// What they have taken.
    spent: LabsSpent,
}

/// Where they come from.
#[derive(Debug)]
enum From {
    /// One that is up, and stays.
    Running(String),
    /// They are made like this, but for the name.
    Made(Box<LabConfig>),
}

/// A lab of a run.
#[derive(Debug)]
pub(super) struct RunLab {
    name: String,
    cluster: LabCluster,
    /// A case has left something on nodes that could not be undone.
    is_disordered: AtomicBool,
}

impl RunLab {
    pub(super) fn cluster(&self) -> &Cluster {
        self.cluster.cluster()
    }
}

impl<'a> Labs<'a> {
    /// # Errors
    /// A program is not there.
    pub(super) fn new(
        settings: &'a Settings,
        target: &Target,
        families: IpFamilies,
        control_plane: ControlPlane,
        nodes: u8,
    ) -> anyhow::Result<Self> {
        let made = |agent| {
            anyhow::Ok(From::Made(Box::new(LabConfig {
                name: format!("run-{}", std::process::id()),
                nodes,
                families,
                control_plane,
                // Between 1 and 100, as the option is checked.
                timeout_scale: settings.limits.scale.ceil() as u32,
                agent,
                plumbline: sibling("plumbline")?,
            })))
        };
        Ok(Self {
            settings,
            from: match target {
                Target::Running(name) => From::Running(name.clone()),
                Target::Named(target) => made(target.agent()?)?,
                Target::Mutant(name) => made(mutant(name)?)?,
            },
            made: AtomicUsize::new(0),
            stay: Mutex::default(),
            spent: LabsSpent::default(),
        })
    }

    /// What runs in them: one agent, the same in each, and what answers as the API.
    pub(super) async fn software(&self) -> Software {
        let From::Made(config) = &self.from else {
            let not_read = "what runs in the lab: it was up before (--lab)".to_owned();
            return Software {
                not_read: vec![not_read],
                ..Software::default()
            };
        };
        let (agent, mut not_read) = config.agent.software().await;
        let kubernetes = match &config.control_plane.programs {
            Some(folder) => {
                let program = folder.join("kube-apiserver");
                let version = printed_version(&program, &["--version".to_owned()]).await;
                version.map_err(|why| not_read.push(format!("the version of Kubernetes: {why}")))
            }
            None => Ok(format!("API server of plumbline {}", env!("CARGO_PKG_VERSION"))),
        };
        Software {
            kubernetes: kubernetes.ok(),
            agents: vec![agent],
            not_read,
            ..Software::default()
        }
    }

    /// What those that have ended have taken.
    pub(super) fn spent(&self) -> &LabsSpent {
        &self.spent
    }

    /// Names of those that stay up after they have ended for the run.
    pub(super) fn stay(&self) -> Vec<String> {
        self.stay.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until every agent of a new lab is ready, or has at least lasted: verdicts on one that ends by itself at once,
    /// for a wrong option say, would be about nothing.
    async fn agents_run(&self, lab: &LabCluster) -> anyhow::Result<()> {
        let cluster = lab.cluster();
        let nodes = &cluster.describe().nodes;
        let all_ready = async {
            loop {
                let mut ready = 0;
                for node in nodes {
                    let agent = cluster.agents()?.state(&node.name).await?;
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
        let lasts = tokio::time::timeout(self.settings.limits.agent_lasts, all_ready);
        tokio::select! {
            lasted = lasts => lasted.unwrap_or(Ok(())),
            () = self.settings.interrupted.cancelled() => Ok(()),
        }
    }

    /// Heals what a case that died has left in a lab that others use after it: namespaces, and what it did to nodes. Returns what can't be healed.
    async fn after_death(&self, lab: &RunLab, case: &Case) -> Vec<String> {
        let mut warnings = Vec::new();
        let cluster = lab.cluster();
        if case.disruptive {
            for node in &cluster.describe().nodes {
                match faults::heal(cluster, &node.name).await {
                    Ok(healed) => warnings.extend(healed.undone.into_iter().chain(healed.held)),
                    Err(error) => {
                        lab.is_disordered.store(true, Ordering::Relaxed);
                        warnings.push(format!("what the case did to {} stays: {error}", node.name));
                    }
                }
            }
        }
        if !self.settings.keep {
            let made = Made {
                run: &self.settings.run,
                case: Some(case.id),
                confined: None,
            };
            let cleaned = made
                .cleanup(&cluster.client(), self.settings.limits.cleanup)
                .await;
            warnings.extend(cleaned.err().map(|halt| halt.to_string()));
        }
        warnings
    }
}

impl Site for Labs<'_> {
    type Lab = RunLab;

    fn name<'a>(&self, lab: &'a RunLab) -> &'a str {
        &lab.name
    }

    /// Attaches to the one that is up, or makes one. With `keep` it outlives this process.
    async fn make(&self) -> anyhow::Result<RunLab> {
        let config = match &self.from {
            From::Running(name) => {
                return Ok(RunLab {
                    name: name.clone(),
                    cluster: LabCluster::attach(name).await?,
                    is_disordered: AtomicBool::new(false),
                });
            }
            From::Made(config) => config,
        };
        // The first is named as the run is, others have their number.
        let before = self.made.fetch_add(1, Ordering::Relaxed);
        let name = match before {
            0 => config.name.clone(),
            _ => format!("{}-{}", config.name, before + 1),
        };
        let config = LabConfig {
            name,
            ..LabConfig::clone(config)
        };
        let step = |step: &str| {
            // Nothing else is shown yet.
            if before == 0 {
                eprintln!(
                    "{}",
                    marked(self.settings.limits.profile.name(), &format!("  {step}"))
                );
            }
        };
        let lifetime = if self.settings.keep {
            Lifetime::Detached
        } else {
            Lifetime::WithCaller
        };
        let began = Instant::now();
        let cluster = LabCluster::up(&config, lifetime, step).await?;
        if let Err(why) = self.agents_run(&cluster).await {
            cluster.down().await?;
            return Err(why);
        }
        self.spent.up(began.elapsed());
        Ok(RunLab {
            name: config.name,
            cluster,
            is_disordered: AtomicBool::new(false),
        })
    }

    async fn run(&self, lab: &RunLab, case: Case, line: &Line<'_>) -> CaseReport {
        let at = ClusterRef::Lab(lab.name.clone());
        let End {
            mut report,
            is_its_own,
        } = process::run(self.settings, At::all_of(&at), case, line).await;
        let goes_on = match self.from {
            From::Running(_) => true,
            From::Made(_) => self.settings.keep || !case.disruptive,
        };
        if !is_its_own && goes_on {
            report.warnings.extend(self.after_death(lab, &case).await);
        }
        report
    }

    async fn room(&self) {
        machine::room().await;
    }

    /// It is on this machine, and goes away only by a case.
    fn absences(&self, _: &RunLab) -> u64 {
        0
    }

    /// Each case has its own.
    fn parts(&self, _: &RunLab) -> usize {
        1
    }

    async fn is_intact(&self, lab: &RunLab) -> bool {
        lab.cluster().intact().await.is_ok()
    }

    async fn end(&self, lab: RunLab) -> anyhow::Result<()> {
        let RunLab {
            name,
            cluster,
            is_disordered,
        } = lab;
        let stays = matches!(self.from, From::Running(_)) || self.settings.keep;
        if stays {
            let mut stay = self.stay.lock().unwrap_or_else(PoisonError::into_inner);
            if !stay.contains(&name) {
                stay.push(name.clone());
            }
            ensure!(
                !is_disordered.into_inner(),
                "the lab {name} stays up, and has what a case did to its nodes: `plumbline heal --lab {name}` undoes it"
            );
            return Ok(());
        }
        let (began, programs) = (Instant::now(), cluster.processor_seconds());
        let down = cluster.down().await;
        self.spent.down(began.elapsed(), programs.unwrap_or_default());
        down.with_context(|| format!("failed to take down the lab {name}"))
    }
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
