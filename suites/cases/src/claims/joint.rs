//! Rows of the catalogue that no case of their own decides: they are judged over the cases of other rows, from what the
//! recoveries of each have needed ([`harness::recovery`]).
//!
//! One case that needed help fails such a row. It passes only if every one of its cases was run and has shown that it needed
//! none; cases that the cluster or the target leaves out say nothing.

use std::collections::BTreeMap;

use harness::{
    case::{Case, Tier},
    report::{AxisReport, CaseReport, overall},
    verdict::Verdict,
};

use super::AREAS;

/// Such a row: its cases are those of the rows above it in its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    /// Its name, which is that of its claim.
    pub id: &'static str,
    /// Folder: the letter and name of the catalogue's area.
    pub area: &'static str,
    /// The claim as one sentence.
    pub sentence: &'static str,
    /// Whom it binds.
    pub tier: Tier,
}

/// What came of such a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its verdict.
    pub verdict: Verdict,
    /// One for each recovery, with its case's id before it, and one for each case that has not shown what it needed.
    pub axes: Vec<AxisReport>,
    /// What each recovery needed, by its axis.
    pub recorded: BTreeMap<String, String>,
}

/// A row by its id.
#[must_use]
pub fn find(id: &str) -> Option<Joint> {
    crate::JOINT.iter().copied().find(|row| row.id == id)
}

impl Joint {
    /// The cases that it is judged over, in the order of the catalogue.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let area = AREAS.into_iter().find(|area| area.name == self.area);
        let claims = area.map_or(&[][..], |area| area.claims);
        let above = || claims.iter().take_while(|claim| claim.id != self.id);
        let decides = |case: &&Case| above().any(|claim| case.claims.contains(&claim.id));
        crate::ALL.iter().filter(decides).copied().collect()
    }

    /// Judges it from reports, of which those of other cases say nothing. `earlier` are axes that passed in a run that this
    /// one goes on with; `is_whole` says that these and the reports are of all of its cases.
    #[must_use]
    pub fn judge(&self, reports: &[&CaseReport], earlier: Vec<AxisReport>, is_whole: bool) -> Judged {
        let cases = self.cases();
        let is_one = |report: &&&CaseReport| cases.iter().any(|case| case.id == report.id);
        let of_its_cases: Vec<&CaseReport> = reports.iter().filter(is_one).copied().collect();
        let mut axes = earlier;
        let mut recorded = BTreeMap::new();
        for report in &of_its_cases {
            let mut of_case = Vec::new();
            for needed in &report.recoveries {
                let axis = needed.axis(&report.id);
                recorded.insert(axis.name.clone(), needed.to_string());
                of_case.push(axis);
            }
            of_case.extend(not_shown(report, &of_case));
            axes.extend(of_case);
        }
        let verdict = match overall(&axes) {
            fail @ Verdict::Fail { .. } => fail,
            _ if !is_whole => Verdict::Skipped {
                why: format!(
                    "judged over {} cases, of which {} did not run: `--filter '^{}$'` selects all of them",
                    cases.len(),
                    cases.len().saturating_sub(of_its_cases.len()),
                    self.id
                ),
            },
            _ if axes.is_empty() => left_out(&of_its_cases),
            other => other,
        };
        Judged {
            verdict,
            axes,
            recorded,
        }
    }
}

/// What takes the place of recoveries that a case has not recorded, or not all of them.
fn not_shown(report: &CaseReport, axes: &[AxisReport]) -> Option<AxisReport> {
    let has_failed = axes
        .iter()
        .any(|axis| matches!(axis.verdict, Verdict::Fail { .. }));
    let why = match &report.verdict {
        Verdict::Pass if axes.is_empty() => "it has recorded no recovery".to_owned(),
        verdict @ (Verdict::Fail { .. } | Verdict::Inconclusive { .. }) if !has_failed => {
            format!("it may not have shown all that it needs: {verdict}")
        }
        _ => return None,
    };
    Some(AxisReport::new(
        format!("{}: its verdict", report.id),
        Verdict::Inconclusive { why },
        Vec::new(),
    ))
}

/// None of its cases applies.
fn left_out(reports: &[&CaseReport]) -> Verdict {
    let first = reports.first();
    let why = format!(
        "none of its cases applies: {}",
        first.map_or_else(String::new, |report| format!("{} {}", report.id, report.verdict))
    );
    let is_not_supported = |report: &&CaseReport| matches!(report.verdict, Verdict::NotSupported { .. });
    if reports.iter().any(is_not_supported) {
        Verdict::NotSupported { why }
    } else {
        Verdict::Skipped { why }
    }
}

#[cfg(test)]
mod tests {
    use harness::report::Needed;

    use super::*;

    fn row() -> Joint {
        find("stale-no-reboot").unwrap()
    }

    fn needed(starts: u32) -> Needed {
        Needed {
            from: "connect4".into(),
            node: "node1".into(),
            boots: ["b".into(), "b".into()],
            cordoned: false,
            starts,
            unaided: Verdict::Pass,
            healthy: 2,
            connections: Vec::new(),
        }
    }

    fn report(id: &str, verdict: Verdict, recoveries: Vec<Needed>) -> CaseReport {
        CaseReport {
            id: id.into(),
            area: row().area.into(),
            claims: vec![id.into()],
            tier: "robustness".into(),
            verdict,
            seed: 1,
            replay: String::new(),
            started_us: 0,
            seconds: 0.0,
            axes: Vec::new(),
            axes_not_enabled: Vec::new(),
            recorded: BTreeMap::default(),
            recoveries,
            warnings: Vec::new(),
            unhealed: Vec::new(),
            evidence: None,
            spent: Default::default(),
            undecided: Vec::new(),
        }
    }

    fn every_case(of: impl Fn(&str) -> CaseReport) -> Vec<CaseReport> {
        row().cases().iter().map(|case| of(case.id)).collect()
    }

    fn judge(reports: &[CaseReport], is_whole: bool) -> Judged {
        row().judge(&reports.iter().collect::<Vec<_>>(), Vec::new(), is_whole)
    }

    fn why() -> String {
        "w".to_owned()
    }

    #[test]
    fn its_cases_are_those_of_the_rows_above_it() {
        let ids: Vec<&str> = row().cases().iter().map(|case| case.id).collect();
        assert_eq!(ids.first(), Some(&"stale-sock-legacy-multi"));
        assert_eq!(ids.last(), Some(&"stale-xdp"));
        assert!(
            ids.len() >= 12 && ids.iter().all(|id| id.starts_with("stale-")),
            "{ids:?}"
        );
    }

    #[test]
    fn it_passes_if_every_case_needed_one_start_and_says_what_each_needed() {
        let judged = judge(&every_case(|id| report(id, Verdict::Pass, vec![needed(1)])), true);
        assert_eq!(judged.verdict, Verdict::Pass);
        assert_eq!(judged.axes.len(), row().cases().len());
        let text = &judged.recorded["stale-map-pin: connect4"];
        assert!(text.contains("starts of the agent 1"), "{text}");
    }

    #[test]
    fn one_case_that_needed_help_fails_it_whatever_else_was_run() {
        let helped = report("stale-map-pin", Verdict::Pass, vec![needed(1), needed(2)]);
        for is_whole in [true, false] {
            let judged = judge(std::slice::from_ref(&helped), is_whole);
            assert_eq!(judged.verdict.name(), "fail");
            assert!(
                judged.verdict.why().contains("stale-map-pin"),
                "{}",
                judged.verdict
            );
        }
    }

    #[test]
    fn a_part_of_its_cases_does_not_pass_it() {
        let one = report("stale-map-pin", Verdict::Pass, vec![needed(1)]);
        assert_eq!(judge(&[one], false).verdict.name(), "skipped");
    }

    #[test]
    fn a_case_that_has_not_shown_what_it_needs_leaves_it_open() {
        for (verdict, recoveries) in [
            (Verdict::Pass, vec![]),
            (Verdict::Inconclusive { why: why() }, vec![needed(1)]),
            (Verdict::Fail { why: why() }, vec![needed(1)]),
        ] {
            let mut reports = every_case(|id| report(id, Verdict::Pass, vec![needed(1)]));
            reports[3] = report(&reports[3].id, verdict, recoveries);
            assert_eq!(judge(&reports, true).verdict.name(), "inconclusive");
        }
    }

    #[test]
    fn cases_that_are_left_out_say_nothing() {
        let not = || Verdict::NotSupported { why: why() };
        let mut reports = every_case(|id| report(id, not(), vec![]));
        assert_eq!(judge(&reports, true).verdict.name(), "not-supported");
        reports[0] = report(&reports[0].id, Verdict::Pass, vec![needed(1)]);
        assert_eq!(judge(&reports, true).verdict, Verdict::Pass);
        let skipped = every_case(|id| report(id, Verdict::Skipped { why: why() }, vec![]));
        assert_eq!(judge(&skipped, true).verdict.name(), "skipped");
    }

    #[test]
    fn reports_of_other_cases_say_nothing() {
        let mut reports = every_case(|id| report(id, Verdict::Pass, vec![needed(1)]));
        reports.push(report("clusterip-from-pod", Verdict::Fail { why: why() }, vec![]));
        assert_eq!(judge(&reports, true).verdict, Verdict::Pass);
    }
}
