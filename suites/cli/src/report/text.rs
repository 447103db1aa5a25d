//! A report as text: counts of each area, the cases, what was left out and why, what broke, and the counts.

use std::{collections::BTreeMap, path::Path, time::Duration};

use super::{
    format::{Case, Explanation, Report, Verdict},
    timeline::MarkKind,
};
use crate::{
    plural::{counted, seconds},
    quick,
    terminal::{self, HEADING, OUTLINE, Verbosity, painted},
};

/// Limit of axes and findings shown of one case; the evidence has all.
const SHOWN: usize = 3;
/// Limit of cases whose details are shown; the HTML report has all.
const DETAILED: usize = 10;
/// Limit of attempts shown of one finding; the evidence has all.
const ATTEMPTS: usize = 2;
/// More cases than these, which fit a terminal of 24 lines, are shown as counts of their areas and one by one only if
/// they did not pass.
const ALL: usize = 16;
/// Limit of lines of a reason; the details have all.
const WHY_LINES: usize = 4;
/// Columns of the labels of verdicts: the longest is `NOT SUPPORTED`.
const LABEL: usize = 13;

/// The report in this number of columns.
///
/// `folder` is the report's: paths of evidence are shown relative to the working directory.
pub(crate) fn table(report: &Report, folder: &Path, verbosity: Verbosity, columns: usize) -> String {
    let columns = quick::columns(&report.run.profile, columns);
    let (all, most) = (verbosity == Verbosity::Verbose, ALL);
    let mut parts = Vec::new();
    if report.cases.len() > most {
        parts.push(areas(report, columns));
    }
    let is_shown = |case: &&Case| {
        case.has_begun() && (all || report.cases.len() <= most || case.label() != Verdict::Pass.name())
    };
    parts.push(rows(report.cases.iter().filter(is_shown), columns));
    parts.push(reasons(report, columns));
    // Failed cases come before inconclusive ones.
    let has_broken = |case: &&Case| case.fails_the_run() && case.has_begun();
    let mut broken: Vec<&Case> = report.cases.iter().filter(has_broken).collect();
    broken.sort_by_key(|case| case.label() != Verdict::Fail.name());
    let more = broken.len().saturating_sub(DETAILED);
    let shown = broken.into_iter().take(DETAILED);
    parts.extend(shown.map(|case| failure(case, folder, columns)));
    if more > 0 {
        let more = counted(more, "more case", "more cases");
        parts.push(format!(
            "… and {more} that failed or were inconclusive: report.html has all\n"
        ));
    }
    if all {
        let detailed = report.cases.iter().filter(|case| case.has_details());
        parts.extend(detailed.map(|case| story(case, folder).trim_start().to_owned()));
    }
    let counts = terminal::wrap(&counts(report), "", "  ", columns);
    parts.push(counts.join("\n") + "\n");
    parts.retain(|part| !part.is_empty());
    quick::marked(&report.run.profile, &parts.join("\n"))
}

/// A verdict for people, in its colour: `NOT SUPPORTED`.
fn label(name: &str) -> String {
    painted(terminal::verdict(name), name.to_uppercase().replace('-', " "))
}

/// Columns of the table of areas: a heading, and the verdicts that it counts.
const COUNTED: [(&str, &[&str]); 5] = [
    ("PASS", &["pass"]),
    ("FAIL", &["fail"]),
    ("INCONCLUSIVE", &["inconclusive"]),
    ("EXEMPT", &["exempt"]),
    ("LEFT OUT", &["skipped", "not-supported"]),
];

/// A row for each area, in the order of their letters.
fn areas(report: &Report, columns: usize) -> String {
    let mut by_area: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in &report.cases {
        by_area.entry(&case.area).or_default().push(case);
    }
    let number = |cases: &[&Case], (_, names): (&str, &[&str])| {
        let count = cases.iter().filter(|case| names.contains(&case.label())).count();
        match count {
            0 => painted(OUTLINE, "-"),
            _ => painted(terminal::verdict(names[0]), count),
        }
    };
    let widest: usize = COUNTED.iter().map(|(heading, _)| heading.len() + 2).sum();
    let room = columns.saturating_sub(widest).max(LABEL);
    let row = |name: &str, cells: [String; COUNTED.len()]| {
        let [pass, fail, inconclusive, exempt, left_out] = cells;
        [
            terminal::cut(name, room),
            pass,
            fail,
            inconclusive,
            exempt,
            left_out,
        ]
    };
    let heading = COUNTED.map(|(heading, _)| painted(HEADING, heading));
    let mut rows = vec![row(&painted(HEADING, "AREA"), heading)];
    rows.extend(
        by_area
            .iter()
            .map(|(area, cases)| row(area, COUNTED.map(|column| number(cases, column)))),
    );
    let [left, right] = [terminal::Side::Left, terminal::Side::Right];
    terminal::columns(&rows, [left, right, right, right, right, right], columns)
}

/// A row for each case.
fn rows<'a>(cases: impl Iterator<Item = &'a Case>, columns: usize) -> String {
    let heading = ["VERDICT", "CASE", "AXES", "TIME"].map(|heading| painted(HEADING, heading));
    let mut rows = vec![heading];
    for case in cases {
        let (passed, all) = case.passed_axes();
        let took = Duration::try_from_secs_f64(case.seconds).unwrap_or_default();
        let [axes, time] = match all {
            0 => [String::new(), String::new()],
            _ => [format!("{passed}/{all}"), seconds(took)],
        };
        rows.push([label(case.label()), case.id.clone(), axes, time]);
    }
    if rows.len() == 1 {
        return String::new();
    }
    let [left, right] = [terminal::Side::Left, terminal::Side::Right];
    terminal::columns(&rows, [left, left, right, right], columns)
}

/// Why cases did not count, or did not begin: each reason once, with its cases.
fn reasons(report: &Report, columns: usize) -> String {
    let mut by_reason: Vec<((&str, String), Vec<&str>)> = Vec::new();
    for case in &report.cases {
        let why = match (&case.exempt, case.verdict) {
            (Some(exempt), _) if case.label() == "exempt" => exempt,
            _ if !case.has_begun() => &case.why,
            _ => continue,
        };
        let reason = (case.label(), terminal::one_line(why));
        match by_reason.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, cases)) => cases.push(&case.id),
            None => by_reason.push((reason, vec![&case.id])),
        }
    }
    let mut text = String::new();
    for ((name, why), cases) in by_reason {
        let count = match cases.len() {
            1 => String::new(),
            count => format!("{count} cases: "),
        };
        text += &labelled(&label(name), LABEL, &format!("{count}{why}"), columns, usize::MAX);
        for line in wrapped_after(&cases.join(", "), LABEL, columns) {
            text += &format!("{}\n", painted(OUTLINE, line));
        }
    }
    text
}

/// Text beside a label of this width, in at most this number of lines.
fn labelled(label: &str, width: usize, text: &str, columns: usize, most: usize) -> String {
    let mut lines = wrapped_after(text, width, columns);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = terminal::cut(&format!("{last} …"), columns);
        }
    }
    let blanks = " ".repeat(width.saturating_sub(terminal::shown_width(label)));
    let mut all = String::new();
    for (number, line) in lines.iter().enumerate() {
        match number {
            0 => all += &format!("{label}{blanks}{}\n", &line[width..]),
            _ => all += &format!("{line}\n"),
        }
    }
    all
}

/// Lines that begin after a label of this width and two blanks.
fn wrapped_after(text: &str, width: usize, columns: usize) -> Vec<String> {
    let blanks = " ".repeat(width + 2);
    terminal::wrap(text, &blanks, &blanks, columns)
}

/// What broke in a case, in four lines: what was expected, what happened, since which event, what to do next. Without
/// an explanation: why, where the evidence is, and how to run it again.
fn failure(case: &Case, folder: &Path, columns: usize) -> String {
    const WIDTH: usize = 10;
    let mut text = format!("{}  {}\n", label(case.label()), painted(HEADING, &case.id));
    let mut line = |name: &str, words: &str, most: usize| {
        let name = painted(OUTLINE, format!("  {name}"));
        text += &labelled(&name, WIDTH, words, columns, most);
    };
    match &case.explanation {
        Some(Explanation {
            expected,
            happened,
            event,
            next,
        }) => {
            line("expected", &terminal::one_line(expected), usize::MAX);
            line("happened", &terminal::one_line(happened), usize::MAX);
            if let Some(event) = event {
                line("since", &terminal::one_line(event), usize::MAX);
            }
            // The report names evidence relative to its own folder; readers here are in another.
            let next = match &case.evidence {
                Some(evidence) => next.replace(evidence, &terminal::path(&folder.join(evidence))),
                None => next.clone(),
            };
            line("next", &terminal::one_line(&next), usize::MAX);
        }
        None => {
            line("why", &terminal::one_line(&case.why), WHY_LINES);
            if let Some(evidence) = &case.evidence {
                line("evidence", &terminal::path(&folder.join(evidence)), usize::MAX);
            }
            line("again", &case.replay, usize::MAX);
        }
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
            text += &format!("    evidence: {}\n", terminal::path(&folder.join(evidence)));
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
        text += &format!(
            "  evidence: {}\n  again:    {}\n",
            terminal::path(&folder.join(evidence)),
            case.replay
        );
    }
    text
}

/// One line with the number of cases of each verdict, and of those that had more to report.
pub(crate) fn counts(report: &Report) -> String {
    let counts = &report.counts;
    let mut text = report
        .no_conformance()
        .map_or_else(String::new, |words| format!("{words}: "));
    text += &format!(
        "{} in {}: {} passed, {} failed",
        counted(report.cases.len(), "case", "cases"),
        seconds(Duration::try_from_secs_f64(report.seconds).unwrap_or_default()),
        counts.pass,
        counts.fail,
    );
    for (count, words) in [
        (counts.inconclusive, "inconclusive"),
        (counts.exempt, "exempt"),
        (counts.skipped, "skipped"),
        (counts.not_supported, "not supported"),
    ] {
        if count > 0 {
            text += &format!(", {count} {words}");
        }
    }
    let number = |is_so: fn(&&Case) -> bool| report.cases.iter().filter(is_so).count();
    for (count, words) in [
        (number(|case| !case.undecided.is_empty()), "tried again"),
        (number(|case| !case.warnings.is_empty()), "with warnings"),
    ] {
        if count > 0 {
            text += &format!("; {words}: {count}");
        }
    }
    if report.interrupted {
        text += "; interrupted";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        format::{Axis, Counts},
        golden,
    };

    fn shown(report: &Report, verbosity: Verbosity) -> String {
        let text = table(report, Path::new("out"), verbosity, 80);
        anstream::adapter::strip_str(&text).to_string()
    }

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
        let text = shown(&report, Verbosity::Verbose);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text}"));
        assert!(at("\n  [d] fail") < at("\n  [a] inconclusive"));
        assert!(at("\n  [b] inconclusive") < at("\n  … and 1 more axis"));
        assert!(at(&format!("\nFAIL  {failed}\n")) < at(&format!("\nINCONCLUSIVE  {undecided}\n")));
        assert!(
            at(&format!("\n{undecided} inconclusive: ")) < at("\n2 cases in "),
            "{text}"
        );
        let short = shown(&report, Verbosity::Normal);
        assert!(
            !short.contains("[d] fail") && short.contains("evidence  out/evidence/"),
            "{short}"
        );
    }

    /// A report of all cases: every third is skipped, one failed, one is inconclusive, the others passed.
    fn large() -> Report {
        let mut report = golden::report();
        let passed = report.cases[0].clone();
        let of = |(number, known): (usize, &harness::case::Case)| {
            let (verdict, why) = match number {
                7 => (Verdict::Fail, "1 of 2 axes; IPv4: 3 of 200 refused"),
                8 => (Verdict::Inconclusive, "the fence of node2: not within 30s"),
                _ if number % 3 == 0 => (
                    Verdict::Skipped,
                    "needs a client outside, which the cluster does not have",
                ),
                _ => (Verdict::Pass, ""),
            };
            Case {
                id: known.id.to_owned(),
                area: known.area.to_owned(),
                verdict,
                why: why.to_owned(),
                undecided: Vec::new(),
                replay: format!("plumbline run {} --seed 7", known.id),
                evidence: Some(format!("evidence/{}", known.id)),
                ..passed.clone()
            }
        };
        report.cases = cases::ALL.iter().take(40).enumerate().map(of).collect();
        report.counts = Counts::of(&report.cases);
        report
    }

    #[test]
    fn of_many_cases_areas_are_counted_and_only_what_did_not_pass_is_listed() {
        let report = large();
        let text = shown(&report, Verbosity::Normal);
        insta::assert_snapshot!("many", text);
        for line in text.lines() {
            assert!(terminal::shown_width(line) <= 80, "{line}");
        }
        let all = shown(&report, Verbosity::Verbose);
        for case in &report.cases {
            let is_pass = case.verdict == Verdict::Pass;
            assert_eq!(
                text.contains(&format!(" {} ", case.id)),
                case.verdict == Verdict::Fail || case.verdict == Verdict::Inconclusive
            );
            assert!(
                !is_pass || all.contains(&format!("  {} ", case.id)),
                "{}",
                case.id
            );
        }
    }

    #[test]
    fn cases_that_did_not_begin_are_one_line() {
        const WHY: &str = "the run was interrupted before it began";
        let mut report = large();
        for case in &mut report.cases {
            case.verdict = Verdict::Inconclusive;
            case.why = WHY.to_owned();
            (case.evidence, case.seconds, case.explanation) = (None, 0.0, None);
        }
        report.cases[0].seconds = 1.0;
        report.counts = Counts::of(&report.cases);
        let text = shown(&report, Verbosity::Normal);
        let others = format!("INCONCLUSIVE   {} cases: {WHY}\n", report.cases.len() - 1);
        assert!(text.contains(&others), "{text}");
        let began = format!("\nINCONCLUSIVE  {}\n", report.cases[0].id);
        assert!(
            text.contains(&began) && text.matches("  again ").count() == 1,
            "{text}"
        );
    }

    #[test]
    fn of_many_failures_some_are_told_and_the_others_counted() {
        let mut report = large();
        for case in &mut report.cases {
            case.verdict = Verdict::Fail;
            case.why = "said ".repeat(1_000);
        }
        report.counts = Counts::of(&report.cases);
        let text = shown(&report, Verbosity::Normal);
        assert_eq!(
            text.matches("\nFAIL  ").count() - report.cases.len(),
            DETAILED,
            "{text}"
        );
        assert!(text.contains("… and 30 more cases that failed"), "{text}");
        let said = text.lines().filter(|line| line.contains("said said")).count();
        assert_eq!(said, DETAILED * WHY_LINES, "{text}");
    }
}
