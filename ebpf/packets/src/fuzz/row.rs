//! A difference, printed as a row of a packet table.

use std::fmt;

use super::{
    compare::{Difference, hex},
    kernel::Shot,
    shrink::Mismatch,
};
use crate::model::{Outcome, State};

/// What was put in, what should have come out, and what did.
#[derive(Clone, Debug)]
pub struct Row {
    seed: u64,
    case: u64,
    state: State,
    now: u32,
    shot: Shot,
    outcome: Outcome,
    differences: Vec<Difference>,
}

impl Row {
    pub(super) fn new(seed: u64, case: u64, mismatch: Mismatch) -> Self {
        Self {
            seed,
            case,
            state: mismatch.state,
            now: mismatch.now,
            shot: mismatch.shot,
            outcome: mismatch.outcome,
            differences: mismatch.differences,
        }
    }

    /// What differs.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            state,
            now,
            shot,
            outcome,
            ..
        } = self;
        writeln!(
            f,
            "{:?} at device {}: by the document {:?}, {:?} (seed {}, case {})",
            shot.hook, shot.ifindex, outcome.verdict, outcome.counter, self.seed, self.case
        )?;
        for (address, flags) in &state.addresses {
            writeln!(f, "  ADDRESSES {address:?}: {flags:#x}")?;
        }
        for (key, value) in &state.frontends {
            writeln!(f, "  FRONTENDS {key:?}: {value:?}")?;
        }
        for (key, value) in &state.services {
            writeln!(f, "  SERVICES {key}: {value:?}")?;
        }
        for (key, value) in &state.slots {
            writeln!(f, "  SLOTS {key:?}: {value}")?;
        }
        for (key, value) in &state.backends {
            writeln!(f, "  BACKENDS {key}: {value:?}")?;
        }
        for range in &state.sources {
            writeln!(f, "  SOURCES {range:?}")?;
        }
        for (key, value) in &state.affinity {
            writeln!(f, "  AFFINITY {key:?}: {value:?}")?;
        }
        for (key, value) in &state.flows {
            writeln!(f, "  FLOWS {key:?}: {value:?}")?;
        }
        for (key, value) in &state.fragments {
            writeln!(f, "  FRAGMENTS {key:?}: {value:?}")?;
        }
        writeln!(f, "  CONFIG {:?}", state.config)?;
        writeln!(f, "  now {now}, gso_size {}", shot.gso_size)?;
        writeln!(f, "  packet in {}", hex(&shot.frame))?;
        for difference in &self.differences {
            writeln!(f, "  {difference}")?;
        }
        Ok(())
    }
}
