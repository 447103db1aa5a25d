//! Implementations side by side, in one run on one machine: what a connection by a Service costs, as a share of what the kernel
//! does without any.
//!
//! ```text
//!  Settings ─▶ run ─▶ one lab for each target, and a bare one ─▶ rounds ─▶ Sample … ─▶ figures: ratios by round, quartiles
//! ```
//!
//! The labs run at the same time, idle but for the one that is measured. A round measures everything once in each of them, one
//! after the other and in turns, so that what the machine does besides hits all alike; each ratio is of two figures of one round.
//! The *bare* lab's agents are stopped and what they left is removed: its direct connections are the kernel's own share.
//!
//! Files: `site` (a lab with its Services and servers), `start` (its agent, started anew), `figures` (statistics).

mod figures;
mod site;
mod start;

use std::{path::PathBuf, time::Duration};

use harness::verdict::Halt;
use lab::{AgentCommand, LabError};
pub use probe::load::{Measured, Work};

pub use figures::{Delays, Figure, Quartiles, Row, Starts, delays, rows, starts};
use site::Site;

/// Name of the lab without an implementation.
pub const BARE: &str = "none";

/// What is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The targets, each in a lab of its own.
    pub targets: Vec<AgentCommand>,
    /// Path of plumbline, which runs the labs.
    pub plumbline: PathBuf,
    /// Part of the labs' names.
    pub run: String,
    /// Folder for the histories of what was written to the labs' APIs.
    pub out: PathBuf,
    /// Numbers of Services beside those that are measured, each measured in turn.
    pub services: Vec<usize>,
    /// Rounds for each number of Services.
    pub rounds: usize,
    /// Time of one measurement.
    pub lasts: Duration,
    /// The ways to the server.
    pub ways: Vec<Way>,
    /// The exchanges.
    pub works: Vec<Work>,
    /// Threads of a client that make exchanges at once, and of a server that answers them.
    pub threads: usize,
    /// Changes of other Services' slices in a second, while the delay of a change is measured: each number in turn.
    pub changes: Vec<u32>,
    /// Cold starts of each target's agent for each number of Services.
    pub starts: usize,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From a pod by a cluster IP to a pod of another node.
    Pod,
    /// From a node by a cluster IP to a pod of another node.
    Host,
    /// From outside by a node port to a pod of the same node.
    Near,
    /// From outside by a node port to a pod of another node.
    Far,
    /// From outside by a load balancer's address to a pod of another node.
    Balanced,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pod, Self::Host, Self::Near, Self::Far, Self::Balanced];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Host => "host",
            Self::Near => "near",
            Self::Far => "far",
            Self::Balanced => "balanced",
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Pod => "pod → cluster IP → pod of another node",
            Self::Host => "host → cluster IP → pod of another node",
            Self::Near => "outside → node port → pod of that node",
            Self::Far => "outside → node port → pod of another node",
            Self::Balanced => "outside → load balancer → pod of another node",
        }
    }
}

impl std::str::FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|way| way.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("expected one of {names}, found {text:?}")
            })
    }
}

/// By what a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// Its pod's own address, by the same hops.
    Direct,
    /// A Service.
    Service,
}

impl By {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Service => "service",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The target's name, or [`BARE`].
    pub target: String,
    /// Services beside the measured ones.
    pub services: usize,
    /// Number of the round.
    pub round: usize,
    /// Way to the server.
    pub way: Way,
    /// By what it was reached.
    pub by: By,
    /// The exchange.
    pub work: Work,
    /// What was measured.
    pub measured: Measured,
}

/// From the write of a slice to the first connection that its new endpoint answered.
#[derive(Clone, Debug)]
pub struct Change {
    /// The target's name.
    pub target: String,
    /// Services beside the measured ones.
    pub services: usize,
    /// Changes of other slices in a second, as planned.
    pub others: u32,
    /// Changes of other slices in a second, as made.
    pub others_made: f64,
    /// Number of the round.
    pub round: usize,
    /// The delay: from when the write was sent to the beginning of the connection, which are at most a millisecond apart from the
    /// one before.
    pub took: Duration,
    /// Connections before that one, which got no answer.
    pub failed: u64,
}

/// A cold start: of an agent whose programs and state were removed before.
#[derive(Clone, Debug)]
pub struct Start {
    /// The target's name.
    pub target: String,
    /// Services beside the measured ones.
    pub services: usize,
    /// Number of the start.
    pub round: usize,
    /// From when the agent was told to start to the beginning of the connection by which the last of [`SAMPLED`] Services was seen.
    pub took: Duration,
}

/// Services that are asked after a cold start, at most, evenly spread in the order of their creation, with the first and the last of
/// them: one after the other takes some hundredths of a second if all are served.
pub const SAMPLED: usize = 256;

/// Memory of a target's agent on one node, after the measurements with so many Services.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The target's name.
    pub target: String,
    /// Services beside the measured ones.
    pub services: usize,
    /// Resident memory (`VmRSS` of proc(5)), in KiB.
    pub resident_kib: u64,
}

/// All that was measured.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Measurements, in their order.
    pub samples: Vec<Sample>,
    /// Delays of changes, in their order.
    pub changes: Vec<Change>,
    /// Cold starts, in their order.
    pub starts: Vec<Start>,
    /// Memory of agents.
    pub memory: Vec<Memory>,
}

/// Why it could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A lab.
    #[error("the lab of {target}: {error}")]
    Lab {
        /// The target's name.
        target: String,
        /// Why.
        error: LabError,
    },
    /// The API, or a process in a lab.
    #[error("the lab of {target}: {error}")]
    Halt {
        /// The target's name.
        target: String,
        /// Why.
        error: Halt,
    },
}

/// Is told what is being done.
pub trait Progress: Sync {
    /// Something begins.
    fn begins(&self, what: &str);
    /// So many of all measurements have been made.
    fn measured(&self, done: usize, of: usize);
}

/// How many measurements these settings make.
#[must_use]
pub fn measurements(settings: &Settings) -> usize {
    let targets = settings.targets.len();
    let exchanges = (2 * targets + 1) * settings.ways.len() * settings.works.len();
    let in_rounds = settings.rounds * (exchanges + targets * settings.changes.len());
    settings.services.len() * (in_rounds + targets * settings.starts)
}

/// Makes the labs, measures, and removes them, whatever the end is.
///
/// # Errors
/// What kept it from being measured.
pub async fn run(settings: &Settings, progress: &dyn Progress) -> Result<Results, BenchError> {
    let mut sites = Vec::new();
    let made = make(settings, progress, &mut sites).await;
    let measured = match made {
        Ok(()) => measure(settings, progress, &mut sites).await,
        Err(error) => Err(error),
    };
    progress.begins("the labs are removed");
    let mut removed = Ok(());
    for site in sites {
        removed = removed.and(site.down().await);
    }
    let results = measured?;
    removed.map(|()| results)
}

async fn make(settings: &Settings, progress: &dyn Progress, sites: &mut Vec<Site>) -> Result<(), BenchError> {
    let bare = settings.targets.first().map(|agent| (BARE, agent));
    let targets = settings.targets.iter().map(|agent| (agent.label.as_str(), agent));
    for (number, (name, agent)) in bare.into_iter().chain(targets).enumerate() {
        progress.begins(&format!("a lab for {name}"));
        sites.push(Site::up(settings, number, name, agent).await?);
    }
    Ok(())
}

async fn measure(
    settings: &Settings,
    progress: &dyn Progress,
    sites: &mut [Site],
) -> Result<Results, BenchError> {
    let mut results = Results::default();
    let all = measurements(settings);
    let mut done = 0;
    for services in &settings.services {
        for site in sites.iter_mut() {
            progress.begins(&format!("{services} Services for {}", site.name));
            site.fill(*services).await?;
        }
        for round in 0..settings.rounds {
            for way in &settings.ways {
                for work in &settings.works {
                    // Each is the first as often as the others.
                    for turn in 0..sites.len() {
                        let site = &sites[(round + turn) % sites.len()];
                        let mut by = site.by();
                        let first = round % by.len();
                        by.rotate_left(first);
                        for by in by {
                            progress.begins(&format!(
                                "{services} Services, round {}: {}, {} {}, {}",
                                round + 1,
                                site.name,
                                way.name(),
                                by.name(),
                                work.name()
                            ));
                            let measured = site.measure(*way, by, *work, settings.lasts).await?;
                            results.samples.push(Sample {
                                target: site.name.clone(),
                                services: *services,
                                round,
                                way: *way,
                                by,
                                work: *work,
                                measured,
                            });
                            done += 1;
                            progress.measured(done, all);
                        }
                    }
                }
            }
            for others in &settings.changes {
                for site in sites.iter_mut().filter(|site| !site.is_bare()) {
                    progress.begins(&format!(
                        "{services} Services, round {}: {}, a change beside {others} a second",
                        round + 1,
                        site.name
                    ));
                    let change = site.change(*services, *others, round).await?;
                    results.changes.push(change);
                    done += 1;
                    progress.measured(done, all);
                }
            }
        }
        for site in sites.iter().filter(|site| !site.is_bare()) {
            results.memory.push(Memory {
                target: site.name.clone(),
                services: *services,
                resident_kib: site.resident_kib().await?,
            });
        }
        for round in 0..settings.starts {
            for site in sites.iter().filter(|site| !site.is_bare()) {
                progress.begins(&format!(
                    "{services} Services, cold start {}: {}",
                    round + 1,
                    site.name
                ));
                results.starts.push(site.cold_start(*services, round).await?);
                done += 1;
                progress.measured(done, all);
            }
        }
    }
    Ok(results)
}

/// How long these settings take at least.
#[must_use]
pub fn at_least(settings: &Settings) -> Duration {
    settings.lasts * u32::try_from(measurements(settings)).unwrap_or(u32::MAX)
}
