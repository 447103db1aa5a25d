//! Claims that are judged over the cases of others: `stale-no-reboot`, from what each recovery of a case about
//! leftovers has needed ([`harness::recovery`]).
//!
//! A recovery needs at most one start of the agent: the kernel's boot id stays, the node is not cordoned, the suite
//! detaches nothing before the verdict, and connections that were healthy before the start survive it. State of a
//! connection from outside is in maps of packet programs: where a case takes away what leads to these, its survival is
//! recorded, not judged. An agent that stays unready until a leftover is detached passes `stale-sock-exclusive-attach`,
//! and fails this claim.
//!
//! One case that needed help fails the claim. It passes only if every one of its cases ran and has shown that it needed
//! none; cases that the cluster or the target excludes count as neither.

use std::collections::BTreeMap;

use harness::{
    report::{AxisReport, CaseReport, overall},
    verdict::Verdict,
};

use super::Claim;

/// The verdict on such a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its verdict.
    pub verdict: Verdict,
    /// One for each recovery, with its case's id before it, and one for each case that has not shown what it needed.
    pub axes: Vec<AxisReport>,
    /// What each recovery needed, by its axis.
    pub recorded: BTreeMap<String, String>,
}

/// All such claims.
pub fn all() -> impl Iterator<Item = &'static Claim> {
    super::all().filter(|claim| claim.is_joint)
}

/// Such a claim by its id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Claim> {
    super::find(id).filter(|claim| claim.is_joint)
}

/// Judges such a claim from reports; those of other cases are ignored. `earlier` are axes that passed in a run that
/// this one goes on with; `is_whole`: these and the reports are of all of its cases.
#[must_use]
pub fn judge(claim: &Claim, reports: &[&CaseReport], earlier: Vec<AxisReport>, is_whole: bool) -> Judged {
    let cases = claim.cases();
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
                claim.id
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

/// What takes the place of recoveries that a case has not recorded, or not all of them.
fn not_shown(report: &CaseReport, axes: &[AxisReport]) -> Option<AxisReport> {
    let has_failed = axes
        .iter()
        .any(|axis| matches!(axis.verdict, Verdict::Fail { .. }));
    let why = match &report.verdict {
        Verdict::Pass if axes.is_empty() => "it has recorded no recovery".to_owned(),
        verdict @ (Verdict::Fail { .. } | Verdict::Inconclusive { .. }) if !has_failed => {
            format!("it may not have shown everything that it needs: {verdict}")
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

    fn claim() -> &'static Claim {
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
            area: claim().area().unwrap().name.clone(),
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
        claim().cases().iter().map(|case| of(case.id)).collect()
    }

    fn judge(reports: &[CaseReport], is_whole: bool) -> Judged {
        super::judge(claim(), &reports.iter().collect::<Vec<_>>(), Vec::new(), is_whole)
    }

    fn why() -> String {
        "w".to_owned()
    }

    #[test]
    fn its_cases_are_those_of_the_claims_above_it() {
        let ids: Vec<&str> = claim().cases().iter().map(|case| case.id).collect();
        assert_eq!(ids.first(), Some(&"stale-sock-legacy-multi"));
        assert_eq!(ids.last(), Some(&"stale-xdp"));
        assert!(
            ids.len() >= 12 && ids.iter().all(|id| id.starts_with("stale-")),
            "{ids:?}"
        );
    }

    #[test]
    fn it_passes_if_every_case_needed_one_start_and_records_what_each_needed() {
        let judged = judge(&every_case(|id| report(id, Verdict::Pass, vec![needed(1)])), true);
        assert_eq!(judged.verdict, Verdict::Pass);
        assert_eq!(judged.axes.len(), claim().cases().len());
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
