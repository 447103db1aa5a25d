//! A quick run: one axis of each row, a short hold, few probes. A look while something is changed, and no conformance.
//!
//! Control, witness, fence and trap are those of every run, and so is how fast a change must be effective. What is left out
//! is named: axes as not enabled ([`Axes::choose`](crate::axes::Axes::choose)), cases as skipped.

use std::time::Duration;

use crate::{
    case::Case,
    limits::{Limits, Profile},
    verdict::Verdict,
};

/// What every line and every report of a quick run says.
pub const NO_CONFORMANCE: &str = "quick, no conformance";

/// Cases whose claims take longer by themselves are left out of a quick run: it is to end within 60 s on two processors, and one
/// of these would be more than a third of it.
const LONGEST_CLAIM: Duration = Duration::from_secs(20);

impl Limits {
    /// Why a case is left out with these limits, if it is: decided before the run.
    #[must_use]
    pub fn leave_out(&self, case: &Case) -> Option<Verdict> {
        let is_left_out = self.profile == Profile::Quick && case.takes_at_least > LONGEST_CLAIM;
        is_left_out.then(|| Verdict::Skipped {
            why: format!(
                "its claim takes {} s at least, and --quick leaves out what takes more than {} s",
                case.takes_at_least.as_secs(),
                LONGEST_CLAIM.as_secs()
            ),
        })
    }
}
