//! A quick run: one axis of each row, a short hold, few probes. A look while something is changed, and no conformance.
//!
//! Control, witness, fence and trap are those of every run, and so is how fast a change must be effective. What is left out
//! is named: axes as not enabled, cases as skipped.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use crate::{
    case::{Case, Family, families},
    context::Context,
    limits::{Limits, Profile},
    verdict::Verdict,
};

/// What every line and every report of a quick run says.
pub const NO_CONFORMANCE: &str = "quick, no conformance";

/// Cases whose claims take longer by themselves are left out of a quick run: it is to end within 60 s on two processors, and one
/// of these would be more than a third of it.
const LONGEST_CLAIM: Duration = Duration::from_secs(20);

const WHY: &str = "--quick runs one axis of each row";

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

impl Context {
    /// Address families that the case runs for, each by itself: those of the cluster, in a quick run one of them.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        self.axes(families(self.cluster.describe()), Family::to_string)
    }

    /// The points of the axes that run: all of them, in a quick run one. The seed chooses it, and for the same points of a case
    /// always the same one; each of the others is reported by its name as not enabled.
    #[must_use]
    pub fn axes<P>(&self, points: Vec<P>, name: impl Fn(&P) -> String) -> Vec<P> {
        if self.limits().profile != Profile::Quick {
            return points;
        }
        let (chosen, others) = one_of(points, name, (self.options.seed, self.case.id));
        for other in others {
            self.not_enabled(&other, WHY);
        }
        chosen
    }

    /// Whether there are N probes, which what is judged by chance asks for (shares of backends). In a quick run there are not, and
    /// what asks for them is reported as not enabled.
    #[must_use]
    pub fn has_n(&self, what: &str) -> bool {
        self.unless_quick(
            what,
            "--quick takes the fewest probes that show a set, too few for shares",
        )
    }

    /// Whether a case lasts for as long as the watch of [`crate::readiness`] takes to show a failure. In a quick run none does, and
    /// the watch is reported as not enabled.
    pub(crate) fn lasts_for_readiness(&self, watch: &str) -> bool {
        self.unless_quick(
            watch,
            "--quick ends before an agent has been ready for long enough",
        )
    }

    fn unless_quick(&self, what: &str, why: &str) -> bool {
        let is_quick = self.limits().profile == Profile::Quick;
        if is_quick {
            self.not_enabled(what, why);
        }
        !is_quick
    }
}

/// One of the points, and the names of the others.
fn one_of<P>(
    mut points: Vec<P>,
    name: impl Fn(&P) -> String,
    chosen_by: impl std::hash::Hash,
) -> (Vec<P>, Vec<String>) {
    let mut names: Vec<String> = points.iter().map(name).collect();
    if points.len() < 2 {
        return (points, Vec::new());
    }
    let mut hasher = DefaultHasher::new();
    (chosen_by, &names).hash(&mut hasher);
    // Fewer than there are points.
    let at = usize::try_from(hasher.finish() % points.len() as u64).unwrap_or_default();
    names.remove(at);
    (vec![points.swap_remove(at)], names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn chosen(of: usize, seed: u64, case: &str) -> (usize, Vec<String>) {
        let (one, others) = one_of((0..of).collect(), |point| format!("axis {point}"), (seed, case));
        assert_eq!(one.len(), 1);
        (one[0], others)
    }

    #[test]
    fn one_axis_of_many_is_chosen_and_every_other_is_named() {
        for seed in 0..50 {
            let (one, others) = chosen(12, seed, "case");
            let expected: Vec<String> = (0..12)
                .filter(|point| *point != one)
                .map(|point| format!("axis {point}"))
                .collect();
            assert_eq!(others, expected);
        }
    }

    #[test]
    fn the_seed_chooses_and_each_case_by_itself() {
        let by_seed: BTreeSet<usize> = (0..200).map(|seed| chosen(12, seed, "case").0).collect();
        assert_eq!(by_seed.len(), 12, "every axis has its turn");
        assert_eq!(chosen(12, 7, "case"), chosen(12, 7, "case"));
        let by_case: BTreeSet<usize> = (0..50)
            .map(|case| chosen(12, 7, &format!("case-{case}")).0)
            .collect();
        assert!(by_case.len() > 6, "{by_case:?}");
    }

    #[test]
    fn one_axis_alone_runs_and_none_stays_none() {
        let none = one_of(Vec::<u8>::new(), u8::to_string, 7);
        assert_eq!(none, (Vec::new(), Vec::new()));
        assert_eq!(chosen(1, 7, "case"), (0, Vec::new()));
    }
}
