//! What a case leaves: its verdict, by axis, and what it recorded.
//!
//! `needed.rs`: what its recoveries needed.
mod needed;

use std::{collections::BTreeMap, path::PathBuf};

use oracle::finding::Finding;
use serde::{Deserialize, Serialize};

use crate::{time_spent::Spent, verdict::Verdict};

pub use needed::Needed;

/// One axis of a case: a variant, a family, a vantage group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisReport {
    /// Name.
    pub name: String,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Everything that was found.
    pub findings: Vec<Finding>,
    /// The claim that it breaks, if that is none of the case's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaks: Option<String>,
}

impl AxisReport {
    /// An axis of the case's own claims.
    #[must_use]
    pub fn new(name: impl Into<String>, verdict: Verdict, findings: Vec<Finding>) -> Self {
        Self {
            name: name.into(),
            verdict,
            findings,
            breaks: None,
        }
    }
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// Its id.
    pub id: String,
    /// Its area.
    pub area: String,
    /// The claims that it decides.
    pub claims: Vec<String>,
    /// Who must meet them.
    pub tier: String,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Seed of the run: the same seed makes the same order of variants and endpoints.
    pub seed: u64,
    /// How to run it again.
    pub replay: String,
    /// Microseconds since the Unix epoch.
    pub started_us: u64,
    /// How long it took.
    pub seconds: f64,
    /// Its axes.
    pub axes: Vec<AxisReport>,
    /// Axes that the cluster could not enable, with the reason.
    pub axes_not_enabled: Vec<String>,
    /// What implementations may choose, delays, errnos: never judged.
    pub recorded: BTreeMap<String, String>,
    /// What its recoveries needed: no part of its verdict, but of that of a row that is judged over many cases.
    pub recoveries: Vec<Needed>,
    /// Trouble that is not part of the verdict, such as a clean-up that took too long.
    pub warnings: Vec<String>,
    /// Faults that could not be undone on nodes ([`faults::FaultInjector::unhealed`]). The run heals them, or `plumbline heal`.
    #[serde(default)]
    pub unhealed: Vec<String>,
    /// Where the evidence lies: known to the run, which gave the case its folder; that may be elsewhere when the report is read.
    #[serde(skip)]
    pub evidence: Option<PathBuf>,
    /// What it has spent.
    #[serde(default)]
    pub spent: Spent,
    /// Its tries before this one, in their order: all were inconclusive.
    #[serde(default)]
    pub undecided: Vec<Undecided>,
}

/// A try of a case that was inconclusive, and not the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undecided {
    /// Why.
    pub why: String,
    /// How long it took.
    pub seconds: f64,
    /// Where its evidence lies.
    #[serde(skip)]
    pub evidence: Option<PathBuf>,
}

/// The verdict of a case from those of its axes: a failed axis fails it, one that could not be decided leaves
/// it inconclusive, and a case without axes has judged nothing.
#[must_use]
pub fn overall(axes: &[AxisReport]) -> Verdict {
    let fails: Vec<&AxisReport> = axes
        .iter()
        .filter(|axis| matches!(axis.verdict, Verdict::Fail { .. }))
        .collect();
    if let Some(first) = fails.first() {
        let why = format!(
            "{} of {} axes; {}: {}",
            fails.len(),
            axes.len(),
            first.name,
            first.verdict.why()
        );
        return Verdict::Fail { why };
    }
    if let Some(axis) = axes.iter().find(|axis| axis.verdict != Verdict::Pass) {
        return Verdict::Inconclusive {
            why: format!("{}: {}", axis.name, axis.verdict.why()),
        };
    }
    if axes.is_empty() {
        return Verdict::Inconclusive {
            why: "the case has judged nothing".to_owned(),
        };
    }
    Verdict::Pass
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn axis(verdict: Verdict) -> AxisReport {
        AxisReport::new("axis", verdict, Vec::new())
    }
    fn fail() -> Verdict {
        Verdict::Fail { why: "w".into() }
    }
    fn open() -> Verdict {
        Verdict::Inconclusive { why: "w".into() }
    }

    #[rstest]
    #[case::nothing_judged(vec![], "inconclusive")]
    #[case::all_inside(vec![Verdict::Pass, Verdict::Pass], "pass")]
    #[case::one_outside(vec![Verdict::Pass, open(), fail()], "fail")]
    #[case::one_undecided(vec![Verdict::Pass, open()], "inconclusive")]
    #[case::one_not_supported(vec![Verdict::Pass, Verdict::NotSupported { why: "w".into() }], "inconclusive")]
    fn the_worst_axis_decides(#[case] axes: Vec<Verdict>, #[case] expected: &str) {
        let axes: Vec<AxisReport> = axes.into_iter().map(axis).collect();
        assert_eq!(overall(&axes).name(), expected);
    }
}
