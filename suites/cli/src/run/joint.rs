//! Reports of claims that are judged over the cases of others.
//!
//! Such a claim is reported if at least one of its cases was selected. One case that needed help fails it, whatever was
//! selected; it passes only in a run of all of them, or in a rerun that goes on with such a run.

use cases::claims::{Claim, joint};
use harness::report::CaseReport;

use super::{
    exempt::{self, Exemption},
    previous_run::Last,
    process::Settings,
};

/// Inserts the report of each such claim after those of its cases. Each report comes with the reason if it is exempt.
pub(super) fn with_joint_claims(
    mut reports: Vec<(CaseReport, Option<String>)>,
    settings: &Settings,
    exemptions: &[Exemption],
    last: Option<&Last>,
) -> Vec<(CaseReport, Option<String>)> {
    for claim in joint::all() {
        let cases = claim.cases();
        let is_one = |(report, _): &(CaseReport, _)| cases.iter().any(|case| case.id == report.id);
        if let Some(at) = reports.iter().rposition(is_one) {
            let all: Vec<&CaseReport> = reports.iter().map(|(report, _)| report).collect();
            let judged = report(claim, &all, settings, last);
            reports.insert(at + 1, exempt::with_reason(judged, exemptions));
        }
    }
    reports
}

fn report(claim: &Claim, reports: &[&CaseReport], settings: &Settings, last: Option<&Last>) -> CaseReport {
    let cases = claim.cases();
    let of_cases = || {
        let is_one = |report: &&&CaseReport| cases.iter().any(|case| case.id == report.id);
        reports.iter().filter(is_one)
    };
    let earlier = last.and_then(|last| last.joint.get(claim.id.as_str())).cloned();
    let is_whole = match &earlier {
        Some(earlier) => earlier.was_whole,
        None => of_cases().count() == cases.len(),
    };
    let axes = earlier.map_or_else(Vec::new, |earlier| earlier.axes);
    let judged = joint::judge(claim, reports, axes, is_whole);
    CaseReport {
        id: claim.id.to_string(),
        area: claim.area().map_or_else(String::new, |area| area.name.clone()),
        claims: vec![claim.id.to_string()],
        tier: claim.tier.to_string(),
        verdict: judged.verdict,
        seed: settings.seed,
        replay: settings.replay(claim.id.as_str()),
        started_us: of_cases()
            .map(|report| report.started_us)
            .min()
            .unwrap_or_default(),
        // The duration is already part of the cases' own.
        seconds: 0.0,
        axes: judged.axes,
        axes_not_enabled: Vec::new(),
        recorded: judged.recorded,
        recoveries: Vec::new(),
        warnings: Vec::new(),
        unhealed: Vec::new(),
        evidence: None,
        spent: Default::default(),
        undecided: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use harness::verdict::Verdict;

    use super::{
        super::process::{tests::settings, without_run},
        *,
    };

    fn ids(reports: &[(CaseReport, Option<String>)]) -> Vec<&str> {
        reports.iter().map(|(report, _)| report.id.as_str()).collect()
    }

    fn joined(ids: &[&str], exemptions: &[Exemption]) -> Vec<(CaseReport, Option<String>)> {
        let settings = settings(Path::new("out"), None, Duration::ZERO);
        let not_supported = || Verdict::NotSupported { why: "w".into() };
        let report = |id: &&str| {
            let case = cases::find(id).unwrap();
            (without_run(&case, &settings, not_supported()), None)
        };
        with_joint_claims(ids.iter().map(report).collect(), &settings, exemptions, None)
    }

    #[test]
    fn a_joint_claim_stands_behind_its_cases_if_one_of_them_was_selected() {
        let selected = [
            "clusterip-from-pod",
            "stale-map-pin",
            "stale-restart-loop-no-growth",
        ];
        let reports = joined(&selected, &[]);
        let behind = [selected[0], selected[1], "stale-no-reboot", selected[2]];
        assert_eq!(ids(&reports), behind);
        assert_eq!(reports[2].0.verdict.name(), "skipped");
        assert!(reports[2].0.replay.contains("run stale-no-reboot "));
        assert_eq!(ids(&joined(&selected[..1], &[])), selected[..1]);
    }

    #[test]
    fn all_of_its_cases_make_it_whole_and_a_claim_exempts_it() {
        let claim = joint::find("stale-no-reboot").unwrap();
        let all: Vec<&str> = claim.cases().iter().map(|case| case.id).collect();
        let reports = joined(&all, &["stale-no-reboot=why".parse().unwrap()]);
        let (judged, exempt) = reports.last().unwrap();
        assert_eq!(
            (&*judged.id, judged.verdict.name()),
            ("stale-no-reboot", "not-supported")
        );
        assert_eq!(exempt.as_deref(), Some("stale-no-reboot: why"));
    }
}
