//! The labs of a run: new ones, each with a name of its own, or one that runs already.

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
    Cluster, Description,
    software::{Software, printed_version},
};
use harness::{case::Case, cleanup::Made, report::CaseReport};
use lab::{AgentCommand, ControlPlane, IpFamilies, LabCluster, LabConfig, Lifetime, sibling};

use super::{
    machine,
    process::{self, At, End, Settings},
    progress::Line,
    schedule::Site,
    usage::LabsSpent,
};
use crate::{cluster::ClusterRef, lab::TargetArgs, terminal};

/// Interval between checks of the agents.
const LOOK: Duration = Duration::from_millis(50);
/// Lines shown of the log of an agent that has ended.
const LOG_LINES: usize = 10;

/// The implementation under test.
#[derive(Debug)]
pub(super) enum Target {
    /// The implementation in a running lab.
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

    /// The options as text for the command line.
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
pub(super) struct LabSite<'a> {
    settings: &'a Settings,
    from: LabSource,
    /// Number of labs that were made.
    made: AtomicUsize,
    /// Names of labs that stay up.
    stay: Mutex<Vec<String>>,
    /// Resources that the labs have used.
    spent: LabsSpent,
}

/// Where labs come from.
#[derive(Debug)]
enum LabSource {
    /// A running lab, which stays up.
    Running(String),
    /// New labs with this configuration, except for the name.
    Made(Box<LabConfig>),
}

impl LabSource {
    fn new(
        target: &Target,
        families: IpFamilies,
        control_plane: ControlPlane,
        nodes: u8,
        scale: f64,
    ) -> anyhow::Result<Self> {
        let agent = match target {
            Target::Running(name) => return Ok(Self::Running(name.clone())),
            Target::Named(target) => target.agent()?,
            Target::Mutant(name) => mutant(name)?,
        };
        Ok(Self::Made(Box::new(LabConfig {
            name: format!("run-{}", std::process::id()),
            nodes,
            families,
            control_plane,
            // At least 1 and at most 100, as the option is checked.
            timeout_scale: scale.ceil() as u32,
            agent,
            plumbline: sibling("plumbline")?,
        })))
    }
}

/// The description of the labs of a run; no lab is started.
///
/// # Errors
/// A program is missing, or no lab of the name runs.
pub(super) async fn described(
    target: &Target,
    families: IpFamilies,
    control_plane: ControlPlane,
    nodes: u8,
    scale: f64,
) -> anyhow::Result<Description> {
    Ok(
        match LabSource::new(target, families, control_plane, nodes, scale)? {
            LabSource::Running(name) => LabCluster::attach(&name).await?.cluster().describe().clone(),
            LabSource::Made(config) => LabCluster::expected(&config)?,
        },
    )
}

/// A lab of a run.
#[derive(Debug)]
pub(super) struct RunLab {
    name: String,
    cluster: LabCluster,
    /// Whether a case has left something on nodes that could not be undone.
    is_disordered: AtomicBool,
}

impl RunLab {
    pub(super) fn cluster(&self) -> &Cluster {
        self.cluster.cluster()
    }
}

impl<'a> LabSite<'a> {
    /// # Errors
    /// A program is missing.
    pub(super) fn new(
        settings: &'a Settings,
        target: &Target,
        families: IpFamilies,
        control_plane: ControlPlane,
        nodes: u8,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            settings,
            from: LabSource::new(target, families, control_plane, nodes, settings.limits.scale)?,
            made: AtomicUsize::new(0),
            stay: Mutex::default(),
            spent: LabsSpent::default(),
        })
    }

    /// The software in the labs: the agent, the same in each, and the API server.
    pub(super) async fn software(&self) -> Software {
        let LabSource::Made(config) = &self.from else {
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

    /// Resources that the ended labs have used.
    pub(super) fn spent(&self) -> &LabsSpent {
        &self.spent
    }

    /// Names of labs that stay up after the run.
    pub(super) fn stay(&self) -> Vec<String> {
        self.stay.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until every agent of a new lab is ready, or has run for a while without /readyz: verdicts about an agent
    /// that exits at once, for example because of a wrong option, would be worthless.
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
        // An agent without /readyz only has to keep running.
        let lasts = tokio::time::timeout(self.settings.limits.agent_lasts, all_ready);
        tokio::select! {
            lasted = lasts => lasted.unwrap_or(Ok(())),
            () = self.settings.interrupted.cancelled() => Ok(()),
        }
    }

    /// Heals a shared lab after a case that died: namespaces, and changes on nodes. Returns what can't be healed.
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

impl Site for LabSite<'_> {
    type Lab = RunLab;

    fn name<'a>(&self, lab: &'a RunLab) -> &'a str {
        &lab.name
    }

    /// Connects to the running lab, or makes a new one. With `keep`, it outlives this process.
    async fn make(&self) -> anyhow::Result<RunLab> {
        let config = match &self.from {
            LabSource::Running(name) => {
                return Ok(RunLab {
                    name: name.clone(),
                    cluster: LabCluster::attach(name).await?,
                    is_disordered: AtomicBool::new(false),
                });
            }
            LabSource::Made(config) => config,
        };
        // The first lab is named after the run; the others get a number.
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
            // No progress line exists yet.
            if before == 0 {
                terminal::step(step);
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
            LabSource::Running(_) => true,
            LabSource::Made(_) => self.settings.keep || !case.disruptive,
        };
        if !is_its_own && goes_on {
            report.warnings.extend(self.after_death(lab, &case).await);
        }
        report
    }

    async fn room(&self) {
        machine::room().await;
    }

    /// The API server runs on this machine, and only cases stop it.
    fn absences(&self, _: &RunLab) -> u64 {
        0
    }

    /// Each disruptive case has a lab of its own.
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
        let stays = matches!(self.from, LabSource::Running(_)) || self.settings.keep;
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
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn mutant(name: &str) -> anyhow::Result<AgentCommand> {
    let program = sibling("plumbline-mutant")
        .context("mutants are a program of their own: cargo build --package mutants")?;
    let mut agent = AgentCommand::of_target("reference", Some(&program))?;
    agent.argv.extend(["--mutant".to_owned(), name.to_owned()]);
    agent.label = format!("mutant:{name}");
    Ok(agent)
}
