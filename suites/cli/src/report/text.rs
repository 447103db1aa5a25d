//! A report as text: a table, the details of each case that did not pass, and the counts.

use std::{path::Path, time::Duration};

use comfy_table::{Table, presets};

use super::{
    format::{Case, Report, Verdict},
    timeline::MarkKind,
};
use crate::{
    plural::{counted, seconds},
    quick::marked,
};

/// Limit of axes and findings shown of one case; the evidence has all.
const SHOWN: usize = 3;
/// Limit of failed cases in the list at the end; the details of all come before it.
const LINES: usize = 10;
/// Limit of attempts shown of one finding; the evidence has all.
const ATTEMPTS: usize = 2;

/// The table, details of the cases that did not pass, and the counts.
///
/// `folder` is the report's: paths of evidence are made relative to the current folder.
pub(crate) fn table(report: &Report, folder: &Path) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["VERDICT", "CASE", "TIER", "AXES", "TIME"]);
    for case in &report.cases {
        let (passed, all) = case.passed_axes();
        table.add_row([
            case.label().to_uppercase(),
            case.id.clone(),
            case.tier.clone(),
            format!("{passed}/{all}"),
            seconds(Duration::try_from_secs_f64(case.seconds).unwrap_or_default()),
        ]);
    }
    let mut detailed: Vec<&Case> = report.cases.iter().filter(|case| case.has_details()).collect();
    // Failed cases come before inconclusive ones.
    detailed.sort_by_key(|case| case.label() != Verdict::Fail.name());
    let details: String = detailed.into_iter().map(|case| story(case, folder)).collect();
    let text = format!("{table}\n{details}\n{}{}\n", failed(report), counts(report));
    marked(&report.run.profile, &text)
}

/// A line for each failed case, for readers who see only the end.
fn failed(report: &Report) -> String {
    let failed = report
        .cases
        .iter()
        .filter(|case| case.label() == Verdict::Fail.name());
    let line = |case: &Case| format!("FAIL {}: {}\n", case.id, case.why);
    let (count, shown) = (failed.clone().count(), failed.take(LINES).map(line));
    let mut text: String = shown.collect();
    if count > LINES {
        text += &format!("… and {} more\n", count - LINES);
    }
    text
}

/// The details of a case: the claim, what was seen, which backend answered, and where the evidence is.
pub(crate) fn story(case: &Case, folder: &Path) -> String {
    let mut text = format!("\n{} {}", case.id, case.verdict.name());
    if !case.why.is_empty() {
        text += &format!(": {}", case.why);
    }
    text += "\n";
    for (id, claim) in &case.claims {
        text += &format!("  claim {id}: {claim}\n");
    }
    if let Some(exempt) = &case.exempt {
        text += &format!("  exempt: {exempt}\n");
    }
    for (number, earlier) in (1..).zip(&case.undecided) {
        text += &format!("  try {number} was inconclusive: {}\n", earlier.why);
        if let Some(evidence) = &earlier.evidence {
            text += &format!("    evidence: {}\n", folder.join(evidence).display());
        }
    }
    let mut others: Vec<_> = case
        .axes
        .iter()
        .filter(|axis| axis.verdict != Verdict::Pass)
        .collect();
    others.sort_by_key(|axis| axis.verdict != Verdict::Fail);
    for axis in others.iter().take(SHOWN) {
        text += &format!("  [{}] {}\n", axis.name, axis.verdict.name());
        for finding in axis.findings.iter().take(SHOWN) {
            text += &format!(
                "    {}\n      expected {}\n      found    {}\n",
                finding.subject, finding.expected, finding.found
            );
            for attempt in finding.attempts.iter().take(ATTEMPTS) {
                text += &format!("      {attempt}\n");
            }
        }
    }
    let more = others.len().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("  … and {}\n", counted(more, "more axis", "more axes"));
    }
    if case.verdict != Verdict::Pass
        && let Some(timeline) = &case.timeline
    {
        text += "  what the case did:\n";
        for mark in &timeline.marks {
            let kind = match mark.kind {
                MarkKind::Phase => "",
                MarkKind::Fault => "fault: ",
            };
            text += &format!("    {:>7.1} s  {kind}{}\n", mark.at, mark.text);
        }
    }
    for warning in &case.warnings {
        text += &format!("  warning: {warning}\n");
    }
    if let Some(evidence) = &case.evidence {
        let evidence = folder.join(evidence);
        text += &format!(
            "  evidence: {}\n  again:    {}\n",
            evidence.display(),
            case.replay
        );
    }
    text
}

/// One line with the number of cases of each verdict.
pub(crate) fn counts(report: &Report) -> String {
    let counts = &report.counts;
    let exempt = if counts.exempt > 0 {
        format!("{} exempt, ", counts.exempt)
    } else {
        String::new()
    };
    let again = report
        .cases
        .iter()
        .filter(|case| !case.undecided.is_empty())
        .count();
    let again = match again {
        0 => String::new(),
        cases => format!("; tried again: {cases}"),
    };
    format!(
        "{} in {}: {} passed, {} failed, {} inconclusive, {exempt}{} skipped, {} not supported{again}{}",
        counted(report.cases.len(), "case", "cases"),
        seconds(Duration::try_from_secs_f64(report.seconds).unwrap_or_default()),
        counts.pass,
        counts.fail,
        counts.inconclusive,
        counts.skipped,
        counts.not_supported,
        if report.interrupted { "; interrupted" } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{format::Axis, golden};

    #[test]
    fn what_failed_is_told_before_what_could_not_be_decided() {
        let mut report = golden::report();
        let (failed, undecided) = ("clusterip-from-pod", "release-name-lattice");
        report
            .cases
            .retain(|case| [failed, undecided].contains(&case.id.as_str()));
        let case = report
            .cases
            .iter_mut()
            .find(|case| case.id == failed)
            .expect("it is there");
        case.exempt = None;
        let axis = |name: &str, verdict| Axis {
            name: name.to_owned(),
            verdict,
            why: String::new(),
            findings: Vec::new(),
        };
        case.axes = ["a", "b", "c"]
            .map(|name| axis(name, Verdict::Inconclusive))
            .into();
        case.axes.push(axis("d", Verdict::Fail));
        let text = table(&report, Path::new("out"));
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text}"));
        assert!(at("\n  [d] fail") < at("\n  [a] inconclusive"));
        assert!(at("\n  [b] inconclusive") < at("\n  … and 1 more axis"));
        assert!(at(&format!("\n{failed} fail")) < at(&format!("\n{undecided} inconclusive")));
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(last[0].starts_with("2 cases in "), "{text}");
        assert!(last[1].starts_with(&format!("FAIL {failed}: ")), "{text}");
    }
}
