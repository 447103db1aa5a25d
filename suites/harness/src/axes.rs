//! The axes of a case: which of them run, and their verdicts. The first verdict of an axis stays.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, MutexGuard, PoisonError},
};

use oracle::finding::{Finding, Weight};

use crate::{limits::Profile, report::AxisReport, verdict::Verdict};

const WHY: &str = "--quick runs one axis of each row";

/// All axes of a case; each is one from the first time it is named.
#[derive(Debug, Default)]
pub struct Axes {
    /// Of a quick run: what chooses the one that runs.
    one_by: Option<(u64, &'static str)>,
    axes: Mutex<BTreeMap<String, Axis>>,
    not_enabled: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Axis {
    verdict: Option<Verdict>,
    findings: Vec<Finding>,
    judged: bool,
    /// The claim that it breaks, if it is no point of the row's own axes.
    breaks: Option<&'static str>,
}

impl Axes {
    /// Of a case and a run with this seed.
    pub(crate) fn new(profile: Profile, seed: u64, case: &'static str) -> Self {
        Self {
            one_by: (profile == Profile::Quick).then_some((seed, case)),
            ..Self::default()
        }
    }

    /// The points of the axes that run: all of them, in a quick run one. The seed chooses it, and for the same points of a case
    /// always the same one; each of the others is reported by its name as not enabled.
    #[must_use]
    pub fn choose<P>(&self, points: Vec<P>, name: impl Fn(&P) -> String) -> Vec<P> {
        let Some(by) = self.one_by else {
            return points;
        };
        let (chosen, others) = one_of(points, name, by);
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

    /// Whether the case is to be judged by what it takes longer for than a quick run lasts; in a quick run that is reported as not
    /// enabled.
    pub(crate) fn unless_quick(&self, what: &str, why: &str) -> bool {
        if self.one_by.is_some() {
            self.not_enabled(what, why);
        }
        self.one_by.is_none()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Axis>> {
        self.axes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an axis has no verdict yet.
    #[must_use]
    pub fn is_open(&self, axis: &str) -> bool {
        self.all().entry(axis.to_owned()).or_default().verdict.is_none()
    }

    /// An axis could not be decided.
    pub fn inconclusive(&self, axis: &str, why: String, findings: Vec<Finding>) {
        let mut all = self.all();
        let axis = all.entry(axis.to_owned()).or_default();
        axis.verdict.get_or_insert(Verdict::Inconclusive { why });
        axis.findings.extend(findings);
    }

    /// Beside an axis, which goes on: a claim is broken that the row leans on.
    pub(crate) fn breaks(&self, axis: &str, claim: &'static str, what: &str, findings: Vec<Finding>) {
        let mut all = self.all();
        // It is one from now on, whatever else comes of it.
        all.entry(axis.to_owned()).or_default();
        let beside = all.entry(format!("{axis}: {what}")).or_default();
        let first = findings
            .iter()
            .min_by_key(|finding| finding.weight)
            .map(first_line);
        let why = format!("breaks {claim}: {}", first.unwrap_or_default());
        beside.verdict.get_or_insert(Verdict::Fail { why });
        beside.breaks = Some(claim);
        beside.findings.extend(findings);
    }

    /// Something of an axis has been judged, and this was found; nothing found is inside the permitted set.
    pub fn judged(&self, axis: &str, findings: Vec<Finding>) {
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

    /// An axis of the row that does not run here, and why: it is reported once, and no part of the verdict.
    pub fn not_enabled(&self, axis: &str, why: &str) {
        let axis = format!("{axis}: {why}");
        let mut left_out = self.not_enabled.lock().unwrap_or_else(PoisonError::into_inner);
        if !left_out.contains(&axis) {
            left_out.push(axis);
        }
    }

    /// Axes that the case itself has left out, each once, in the order in which it did.
    pub(crate) fn all_not_enabled(&self) -> Vec<String> {
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
            breaks: axis.breaks.map(str::to_owned),
        };
        self.all().iter().map(report).collect()
    }
}

/// The first line of a finding, and whether it decides nothing.
pub(crate) fn first_line(finding: &Finding) -> String {
    let weight = match finding.weight {
        Weight::Violation => "",
        Weight::Undecided => "(undecided) ",
    };
    format!(
        "{weight}{}",
        finding.to_string().lines().next().unwrap_or_default()
    )
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

    fn finding(weight: Weight) -> Finding {
        Finding {
            weight,
            subject: "s".into(),
            expected: "e".into(),
            found: format!("{weight:?}"),
            first: Vec::new(),
            counted: None,
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
        for axis in ["b", "a", "b"] {
            axes.not_enabled(axis, "why");
        }
        assert_eq!(axes.all_not_enabled(), ["b: why", "a: why"]);
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
            "slice-empty-drops-to-zero",
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
