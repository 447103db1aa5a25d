//! The axes of a case and their verdicts. The first verdict of an axis stays.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use oracle::finding::{Finding, Weight};

use crate::{context::Context, effect::Effect, probing::first_line, report::AxisReport, verdict::Verdict};

/// All axes of a case; each is one from the first time it is named.
#[derive(Debug, Default)]
pub(crate) struct Axes {
    axes: Mutex<BTreeMap<String, Axis>>,
    not_enabled: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Axis {
    verdict: Option<Verdict>,
    findings: Vec<Finding>,
    judged: bool,
    /// It is no point of the row's own axes.
    breaks: Option<Effect>,
}

impl Axes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Axis>> {
        self.axes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self, axis: &str) -> bool {
        self.all().entry(axis.to_owned()).or_default().verdict.is_none()
    }

    fn inconclusive(&self, axis: &str, why: String, findings: Vec<Finding>) {
        let mut all = self.all();
        let axis = all.entry(axis.to_owned()).or_default();
        axis.verdict.get_or_insert(Verdict::Inconclusive { why });
        axis.findings.extend(findings);
    }

    /// Beside an axis, which goes on.
    fn breaks(&self, axis: &str, effect: Effect, what: &str, findings: Vec<Finding>) {
        let mut all = self.all();
        // It is one from now on, whatever else comes of it.
        all.entry(axis.to_owned()).or_default();
        let beside = all.entry(format!("{axis}: {what}")).or_default();
        let first = findings
            .iter()
            .min_by_key(|finding| finding.weight)
            .map(first_line);
        let why = format!("breaks {}: {}", effect.claim(), first.unwrap_or_default());
        beside.verdict.get_or_insert(Verdict::Fail { why });
        beside.breaks = Some(effect);
        beside.findings.extend(findings);
    }

    fn judged(&self, axis: &str, findings: Vec<Finding>) {
        let mut all = self.all();
        let axis = all.entry(axis.to_owned()).or_default();
        axis.judged = true;
        if let Some(worst) = findings.iter().min_by_key(|finding| finding.weight) {
            let text = worst.to_string();
            let why = text.lines().next().unwrap_or_default().to_owned();
            axis.verdict.get_or_insert(match worst.weight {
                Weight::Violation => Verdict::Fail { why },
                Weight::Undecided => Verdict::Inconclusive { why },
            });
        }
        axis.findings.extend(findings);
    }

    /// How an axis stands: a pass if something of it was judged and nothing found so far.
    pub(crate) fn so_far(&self, axis: &str) -> Verdict {
        let all = self.all();
        match all.get(axis) {
            Some(Axis {
                verdict: Some(verdict),
                ..
            }) => verdict.clone(),
            Some(Axis { judged: true, .. }) => Verdict::Pass,
            _ => Verdict::Inconclusive {
                why: format!("nothing of {axis} was judged"),
            },
        }
    }

    fn leave_out(&self, axis: String) {
        let mut left_out = self.not_enabled.lock().unwrap_or_else(PoisonError::into_inner);
        if !left_out.contains(&axis) {
            left_out.push(axis);
        }
    }

    /// Axes that the case itself has left out, each once, in the order in which it did.
    pub(crate) fn not_enabled(&self) -> Vec<String> {
        let left_out = self.not_enabled.lock();
        left_out.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The axes as they stand. Those without a verdict pass if the case came to its end (`ended` is none) and
    /// something of them was judged.
    pub(crate) fn reports(&self, ended: Option<&Verdict>) -> Vec<AxisReport> {
        let open = |axis: &Axis| match ended {
            Some(ended) => ended.clone(),
            None if axis.judged => Verdict::Pass,
            None => Verdict::Inconclusive {
                why: "nothing of it was judged".to_owned(),
            },
        };
        let report = |(name, axis): (&String, &Axis)| AxisReport {
            name: name.clone(),
            verdict: axis.verdict.clone().unwrap_or_else(|| open(axis)),
            findings: axis.findings.clone(),
            breaks: axis.breaks.map(|effect| effect.claim().to_owned()),
        };
        self.all().iter().map(report).collect()
    }
}

impl Context {
    /// Whether an axis has no verdict yet.
    #[must_use]
    pub fn is_open(&self, axis: &str) -> bool {
        self.axes.is_open(axis)
    }

    /// An axis could not be decided.
    pub fn inconclusive(&self, axis: &str, why: String, findings: Vec<Finding>) {
        self.axes.inconclusive(axis, why, findings);
    }

    /// An axis of the row that does not run here, and why: it is reported once, and no part of the verdict.
    pub fn not_enabled(&self, axis: &str, why: &str) {
        self.axes.leave_out(format!("{axis}: {why}"));
    }

    /// What a row leans on is broken, in one of its axes: what a write must come to, what was to be seen of it, and what was found.
    pub fn breaks(&self, axis: &str, effect: Effect, what: &str, findings: Vec<Finding>) {
        self.axes.breaks(axis, effect, what, findings);
    }

    /// Something of an axis has been judged, and this was found; nothing found is inside the permitted set.
    pub fn judged(&self, axis: &str, findings: Vec<Finding>) {
        self.axes.judged(axis, findings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(weight: Weight) -> Finding {
        Finding {
            weight,
            subject: "s".into(),
            expected: "e".into(),
            found: format!("{weight:?}"),
            first: Vec::new(),
        }
    }

    fn verdict(axes: &Axes, ended: Option<&Verdict>) -> String {
        axes.reports(ended)[0].verdict.to_string()
    }

    #[test]
    fn an_axis_passes_only_if_it_was_judged_and_the_case_came_to_its_end() {
        let axes = Axes::default();
        assert!(axes.is_open("a"));
        assert_eq!(verdict(&axes, None), "inconclusive: nothing of it was judged");
        axes.judged("a", Vec::new());
        assert_eq!(verdict(&axes, None), "pass");
        let hung = Verdict::Inconclusive { why: "hung".into() };
        assert_eq!(verdict(&axes, Some(&hung)), "inconclusive: hung");
    }

    #[test]
    fn an_axis_that_is_left_out_again_is_named_once() {
        let axes = Axes::default();
        for axis in ["b: why", "a: why", "b: why"] {
            axes.leave_out(axis.to_owned());
        }
        assert_eq!(axes.not_enabled(), ["b: why", "a: why"]);
    }

    #[test]
    fn a_violation_outweighs_what_is_undecided() {
        let axes = Axes::default();
        axes.judged("a", vec![finding(Weight::Undecided), finding(Weight::Violation)]);
        assert_eq!(verdict(&axes, None), "fail: s: expected e, found Violation");
    }

    #[test]
    fn what_breaks_another_claim_is_told_beside_its_axis_which_goes_on() {
        let axes = Axes::default();
        axes.breaks(
            "a",
            Effect::Emptied,
            "the culprit refuses",
            vec![finding(Weight::Violation)],
        );
        assert!(axes.is_open("a"));
        axes.judged("a", Vec::new());
        let reports = axes.reports(None);
        let told: Vec<_> = reports
            .iter()
            .map(|axis| (axis.name.as_str(), axis.verdict.to_string()))
            .collect();
        assert_eq!(
            told,
            [
                ("a", "pass".to_owned()),
                (
                    "a: the culprit refuses",
                    "fail: breaks slice-empty-drops-to-zero: s: expected e, found Violation".to_owned()
                ),
            ]
        );
        assert_eq!(reports[1].breaks.as_deref(), Some("slice-empty-drops-to-zero"));
    }

    #[test]
    fn the_first_verdict_stays() {
        let axes = Axes::default();
        axes.inconclusive("a", "control failed".into(), Vec::new());
        axes.judged("a", vec![finding(Weight::Violation)]);
        assert!(!axes.is_open("a"));
        assert_eq!(verdict(&axes, None), "inconclusive: control failed");
        assert_eq!(axes.reports(None)[0].findings.len(), 1);
    }
}
