//! A difference: the steps that lead to it, what should have come of the last, and what did.

use std::fmt;

use super::{
    model::{Outcome, State},
    step::Step,
};
use crate::fuzz::Difference;

/// The least steps that were found, of which the last was not as it should have been.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(super) seed: u64,
    pub(super) case: u64,
    pub(super) steps: Vec<Step>,
    /// Before the last step.
    pub(super) state: State,
    /// The nearest one that is permitted.
    pub(super) outcome: Outcome,
    pub(super) differences: Vec<Difference>,
}

impl Failure {
    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What differs.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            case,
            steps,
            state,
            outcome,
            differences,
        } = self;
        writeln!(f, "// --seed {seed} --first {case} --cases 1 --only sockets")?;
        writeln!(
            f,
            "after the services of `calls::base`, in {} steps:",
            steps.len()
        )?;
        for (number, step) in (1..).zip(steps) {
            writeln!(f, "  {number}. {step:?}")?;
        }
        writeln!(f, "before the last one:")?;
        for (slot, socket) in &state.open {
            writeln!(f, "  socket {slot}: {socket:?}")?;
        }
        for (key, value) in &state.chosen {
            writeln!(f, "  CHOSEN {key:?}: {value:?}")?;
        }
        for (key, value) in &state.reverse {
            writeln!(f, "  SOCKET_REVNAT {key:?}: {value:?}")?;
        }
        for (key, value) in &state.maps.affinity {
            writeln!(f, "  AFFINITY {key:?}: {value:?}")?;
        }
        writeln!(f, "should be seen: {:?}", outcome.seen)?;
        for difference in differences {
            writeln!(f, "{difference}")?;
        }
        Ok(())
    }
}
