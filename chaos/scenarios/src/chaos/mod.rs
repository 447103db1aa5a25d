//! Chaos: seeded writes and faults, clients that go on all the while, one history, and a verdict.
//!
//! ```text
//!  seed ─▶ generate ─▶ schedule ─▶ play ─┬─▶ writes ──▶ API ──▶ states of frontends ─┐
//!              ▲                         ├─▶ faults ─────────▶ disturbances ─────────┼─▶ history ─▶ oracle::chaos ─▶ verdict
//!              │                         └─▶ clients ────────▶ attempts ─────────────┘
//!              └──────── shrink ◀────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A run is a case of the suite: it has its cluster, its readiness watch, its evidence and its clean-up, on every provider.
//!
//! - `schedule.rs`: writes and faults as data, in files; `words.rs`: as text. `world.rs`: what the API has after writes, and what each
//!   frontend serves then. `generate.rs`: random schedules. All of these are pure.
//! - `shapes.rs`: the objects of a world. `calls.rs`: how they are written. `objects.rs`: those in the API. `faults.rs`: faults, made and healed; `storm.rs`: many changes of others. `play.rs`: a run from its staging to its verdict.
pub(crate) mod calls;
pub mod faults;
pub mod generate;
mod objects;
pub mod play;
pub mod schedule;
pub mod shapes;
mod storm;
pub(crate) mod words;
pub mod world;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read as _, Write as _},
    path::Path,
    time::Duration,
};

use cluster::Deviation;
use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    verdict::Halt,
};
use oracle::chaos::ChaosHistory;
use serde::{Deserialize, Serialize};

use self::{
    generate::Wish,
    schedule::{FaultKind, Schedule},
};

/// File of the schedule, in the folder of a run's evidence.
pub const SCHEDULE: &str = "schedule.json";
/// File of the history, there.
pub const HISTORY: &str = "chaos.json.gz";
/// The claim about slices that move to another Service.
const RELABELLED: &str = "slice-relabelled";
/// The largest history that is read, in bytes after its decompression: one of the longest run has a third of it.
const MOST_BYTES: u64 = 1 << 31;

/// What a run plays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Given {
    /// The schedule of a seed.
    Seed {
        /// The seed.
        seed: u64,
        /// How long it lasts, in milliseconds.
        lasts_ms: u32,
        /// Kinds of faults to choose from, of those that the cluster can make; `None`: all.
        kinds: Option<BTreeSet<FaultKind>>,
    },
    /// A schedule.
    Schedule {
        /// The schedule.
        schedule: Schedule,
        /// Leaves the final reads out if something broke before: they wait for T_heal then.
        brief: bool,
    },
}

/// Whether slices may move to another Service: whether a target with these deviations is to keep `slice-relabelled`.
#[must_use]
pub fn may_move(deviations: &[Deviation]) -> bool {
    deviations.iter().all(|one| one.claim != RELABELLED)
}

impl Given {
    /// The seed, also that of which a schedule was made.
    #[must_use]
    pub fn seed(&self) -> u64 {
        match self {
            Self::Seed { seed, .. } => *seed,
            Self::Schedule { schedule, .. } => schedule.seed,
        }
    }

    /// How long it lasts, in milliseconds.
    #[must_use]
    pub fn lasts_ms(&self) -> u32 {
        match self {
            Self::Seed { lasts_ms, .. } => *lasts_ms,
            Self::Schedule { schedule, .. } => schedule.lasts_ms,
        }
    }

    /// The schedule that is played in the cluster of a case, and whether briefly.
    async fn schedule(self, cx: &Context) -> Result<(Schedule, bool), Halt> {
        let (seed, lasts_ms, kinds) = match self {
            Self::Schedule { schedule, brief } => {
                let available = faults::available(cx).await?;
                let missing: Vec<&str> = schedule
                    .kinds()
                    .difference(&available)
                    .map(|kind| kind.name())
                    .collect();
                if missing.is_empty() {
                    return Ok((schedule, brief));
                }
                return Err(Halt::Inconclusive(format!(
                    "the schedule has faults that can't be made here, with this target: {}",
                    missing.join(", ")
                )));
            }
            Self::Seed {
                seed,
                lasts_ms,
                kinds,
            } => (seed, lasts_ms, kinds),
        };
        let deviations = &cx.cluster().describe().deviations;
        let keeps = |claim: &str| deviations.iter().all(|one| one.claim != claim);
        let mut available = faults::available(cx).await?;
        if let Some(wanted) = kinds {
            let missing: Vec<&str> = wanted.difference(&available).map(|kind| kind.name()).collect();
            if !missing.is_empty() {
                cx.record("faults that can't be made here", missing.join(", "));
            }
            available.retain(|kind| wanted.contains(kind));
            if available.is_empty() && !wanted.is_empty() {
                return Err(Halt::Inconclusive(format!(
                    "none of the faults can be made here: {}",
                    missing.join(", ")
                )));
            }
        } else {
            available.retain(|kind| match kind.claim().filter(|claim| !keeps(claim)) {
                None => true,
                Some(claim) => {
                    let why = format!("{}: the target is known not to keep {claim}", kind.name());
                    cx.record("left out", why);
                    false
                }
            });
        }
        let nodes = u8::try_from(cx.nodes().len()).unwrap_or(u8::MAX);
        let moves = may_move(deviations);
        if !moves {
            let why =
                format!("slices that move to another Service: the target is known not to keep {RELABELLED}");
            cx.record("left out", why);
        }
        let wish = Wish {
            lasts_ms,
            kinds: available,
            nodes,
            moves,
        };
        Ok((generate::schedule(seed, &wish), false))
    }
}

/// Plays what is given in the cluster of a case, and writes schedule and history to a folder.
///
/// # Errors
/// What kept it from being played to its end, or a file from being written.
pub async fn run(cx: &Context, given: Given, folder: &Path) -> Result<(), Halt> {
    let broken = |file: &str, error: io::Error| {
        Halt::Harness(format!(
            "failed to write {}: {error}",
            folder.join(file).display()
        ))
    };
    let (schedule, brief) = given.schedule(cx).await?;
    let text = serde_json::to_string_pretty(&schedule).map_err(|error| broken(SCHEDULE, error.into()))?;
    fs::write(folder.join(SCHEDULE), text + "\n").map_err(|error| broken(SCHEDULE, error))?;
    let history = play::play(cx, &schedule, brief).await?;
    write(&folder.join(HISTORY), &history).map_err(|error| broken(HISTORY, error))
}

fn write(path: &Path, history: &ChaosHistory) -> io::Result<()> {
    let mut file = GzEncoder::new(BufWriter::new(File::create(path)?), Compression::fast());
    serde_json::to_writer(&mut file, history)?;
    file.finish()?.flush()
}

/// Reads a history that a run has written, compressed or not.
///
/// # Errors
/// The file can't be read, is too large, or is no history.
pub fn read(path: &Path) -> io::Result<ChaosHistory> {
    let file = BufReader::new(File::open(path)?);
    let is_compressed = path.extension().is_some_and(|end| end == "gz");
    let mut text = String::new();
    let read = if is_compressed {
        GzDecoder::new(file).take(MOST_BYTES).read_to_string(&mut text)
    } else {
        file.take(MOST_BYTES).read_to_string(&mut text)
    };
    if read? as u64 == MOST_BYTES {
        return Err(io::Error::other(format!("expected less than {MOST_BYTES} bytes")));
    }
    Ok(serde_json::from_str(&text)?)
}

/// The case of every run: what a session has to know of it. Its `run` does nothing; a schedule is played in its place.
pub const CASE: Case = Case {
    id: "chaos",
    area: "chaos",
    claims: &[],
    sentence: "Services are as the API says, whatever else goes wrong",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("staging.yaml"),
    longest: Duration::from_secs(1800),
    takes_at_least: Duration::ZERO,
    run: |_| Box::pin(async { Ok(()) }),
};
