//! What the doctor has found, as it is told to machines (`--json`) and, from the same values, to people.
//!
//! **Stability.** [`SCHEMA`] is raised when a field changes its meaning, is renamed or goes; fields and variants may be
//! added without that, so readers leave alone what they do not know. Ids are the kernel's: they name a program, a map or
//! a link until the machine restarts, and are never used again before. Times are seconds.
//!
//! | file | what |
//! |---|---|
//! | `mod` | the report, its problems and checks |
//! | `place` | where programs are attached |
//! | `chain` | attachments, programs, maps, tail calls |

mod chain;
mod place;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    chain::{
        Attachment, Entry, Holder, Loose, Manner, Map, Owner, ProgArray, Program, Stale, Standing,
        TailCalled, Whose, XdpMode,
    },
    place::{CgroupState, Direction, Layer, Place},
};
use super::resolution::Answer;

/// Version of the report's form.
pub const SCHEMA: u32 = 1;

/// One look at one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// What it comes to.
    pub verdict: Verdict,
    /// What is wrong, worst first.
    pub problems: Vec<Problem>,
    /// Every program that is attached where load balancing is done: place by place, in the order of running at each.
    pub attachments: Vec<Attachment>,
    /// Programs of the kinds that balance load, loaded, and attached nowhere that can be seen.
    pub loose: Vec<Loose>,
    /// The programs of both, by id.
    pub programs: BTreeMap<u32, Program>,
    /// The maps that those use, and arrays of programs that no program uses and something pins, by id.
    pub maps: BTreeMap<u32, Map>,
    /// The arrays of programs among them: what calls what.
    #[serde(default)]
    pub prog_arrays: Vec<ProgArray>,
    /// What sets of maps whose layout is known say of services; absent: that was not asked for.
    pub services: Option<Vec<Services>>,
    /// How many programs are attached at hooks that have nothing to do with load balancing, by hook.
    pub others: BTreeMap<String, usize>,
    /// What was looked at beside programs and maps.
    pub checks: Vec<Check>,
    /// What could not be looked at. Nothing is said about it.
    pub blind: Vec<Blind>,
}

/// Services as one set of maps has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Services {
    /// Whose maps they are, as far as it is known.
    pub whose: Whose,
    /// The maps that hold the frontends.
    pub maps: Vec<u32>,
    /// Programs that read them.
    pub programs: Vec<u32>,
    /// From `TCP 10.96.0.1:443` to what sockets of this node meet there.
    pub services: BTreeMap<String, Answer>,
    /// Whether those are all.
    pub complete: bool,
    /// Why they can't be read.
    pub unreadable: Option<String>,
}

/// What a report comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No problem in what could be looked at.
    Healthy,
    /// At least one problem.
    Problems,
}

/// How sure the doctor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It can't be otherwise.
    Certain,
    /// The reasons that are given speak for it.
    Suspected,
}

/// What kind of problem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Programs of an earlier load are still attached.
    StalePrograms,
    /// Programs of one owner read different maps of the same name, and which of them is the current one can't be told.
    TwoGenerations,
    /// One of the checks failed.
    CheckFailed,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its kind.
    pub kind: ProblemKind,
    /// How sure that is.
    pub certainty: Certainty,
    /// In one line.
    pub summary: String,
    /// What happens, to whom, and how that is known: a paragraph.
    pub story: String,
    /// What to do about it.
    pub remedy: String,
    /// Programs that are to blame.
    pub programs: Vec<u32>,
    /// Programs that would do right if it were not for those.
    pub against: Vec<u32>,
    /// Services that the two see differently, at most [`MOST_MISLED`].
    pub misled: Vec<Misled>,
    /// How many there are in all, as far as was compared.
    pub misled_in_all: usize,
}

/// Most services that a problem names; all are counted.
pub const MOST_MISLED: usize = 20;

/// A service that two generations of maps see differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misled {
    /// The service, as `TCP 10.96.0.1:443`.
    pub service: String,
    /// What the maps of the stale program say.
    pub stale: Answer,
    /// What the others say.
    pub current: Answer,
}

/// One thing that was looked at beside programs and maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name, one word or two: stable.
    pub name: String,
    /// What came out.
    pub outcome: Outcome,
    /// In a sentence.
    pub text: String,
}

/// What came out of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be.
    Good,
    /// Worth to know, and no problem.
    Note,
    /// A problem.
    Bad,
}

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blind {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
    /// How it could be.
    pub remedy: String,
}
