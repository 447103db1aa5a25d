//! junit.xml: one suite for each area. Skipped, not supported and exempt are `skipped`, inconclusive is an `error`. A
//! try before the last one is a `flakyError` of a pass and a `rerunError` of any other verdict, as Maven Surefire
//! writes them.

use std::{collections::BTreeMap, time::Duration};

use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus, TestRerun, TestSuite};

use super::format::{Case, Report, Verdict};

/// The text of the file.
///
/// # Errors
/// The report has something that XML cannot express.
pub(crate) fn render(report: &Report) -> anyhow::Result<String> {
    Ok(document(report).to_string()?)
}

fn document(report: &Report) -> quick_junit::Report {
    let mut areas: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in &report.cases {
        areas.entry(&case.area).or_default().push(case);
    }
    let marked = |name: &str| match report.no_conformance() {
        Some(words) => format!("{name} ({words})"),
        None => name.to_owned(),
    };
    let mut document = quick_junit::Report::new(marked("plumbline"));
    document.set_time(seconds(report.seconds));
    for (area, cases) in areas {
        let mut suite = TestSuite::new(marked(area));
        for (name, value) in [
            ("provider", &report.cluster.provider),
            ("target", &report.cluster.target),
            ("kernel", &report.cluster.kernel),
            ("profile", &report.run.profile),
        ] {
            suite.add_property(Property::new(name, value));
        }
        for (name, value) in report.cluster.software.lines() {
            let name = name.to_lowercase().replace(' ', "-");
            suite.add_property(Property::new(name, value));
        }
        for (name, value) in &report.limits {
            suite.add_property(Property::new(format!("limit.{name}"), value.to_string()));
        }
        suite.set_time(seconds(cases.iter().map(|case| case.seconds).sum()));
        suite.add_test_cases(cases.into_iter().map(|case| test_case(report, case)));
        document.add_test_suite(suite);
    }
    document
}

fn test_case(report: &Report, case: &Case) -> TestCase {
    let mut status = match (case.label(), case.verdict) {
        ("exempt", _) | (_, Verdict::Skipped | Verdict::NotSupported) => TestCaseStatus::skipped(),
        (_, Verdict::Pass) => TestCaseStatus::success(),
        (_, Verdict::Fail) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        (_, Verdict::Inconclusive) => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    if case.label() != Verdict::Pass.name() {
        let why = match &case.exempt {
            Some(exempt) if case.label() == "exempt" => {
                format!("{exempt} ({} {})", case.verdict.name(), case.why)
            }
            _ => case.why.clone(),
        };
        status.set_type(case.label()).set_message(why.trim_end());
        let details = details(case);
        if !details.is_empty() {
            status.set_description(details);
        }
    }
    for earlier in &case.undecided {
        let mut rerun = TestRerun::new(NonSuccessKind::Error);
        rerun
            .set_type(Verdict::Inconclusive.name())
            .set_message(earlier.why.trim_end())
            .set_time(seconds(earlier.seconds));
        // A skipped case has no tries.
        status.add_rerun(rerun);
    }
    let mut test = TestCase::new(&*case.id, status);
    test.set_classname(&*case.area).set_time(seconds(case.seconds));
    test.add_property(Property::new("id", &*case.id));
    for claim in case.claims.keys() {
        test.add_property(Property::new("claim", &**claim));
    }
    test.add_property(Property::new("tier", &*case.tier));
    test.add_property(Property::new("verdict", case.verdict.name()));
    test.add_property(Property::new("seed", report.run.seed.to_string()));
    test.add_property(Property::new("replay", &*case.replay));
    for axis in &report.cluster.axes_not_enabled {
        test.add_property(Property::new("axis-not-enabled", &**axis));
    }
    if let Some(evidence) = &case.evidence {
        test.add_property(Property::new("evidence", &**evidence));
    }
    let recorded: Vec<String> = case
        .recorded
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    if !recorded.is_empty() {
        test.set_system_out(recorded.concat());
    }
    test
}

/// Every axis that did not pass, with its findings.
fn details(case: &Case) -> String {
    let mut text = String::new();
    for axis in case.axes.iter().filter(|axis| axis.verdict != Verdict::Pass) {
        text += &format!("[{}] {}: {}\n", axis.name, axis.verdict.name(), axis.why);
        for finding in &axis.findings {
            text += &format!(
                "  {}: expected {}, found {}\n",
                finding.subject, finding.expected, finding.found
            );
            for attempt in &finding.attempts {
                text += &format!("    {attempt}\n");
            }
        }
    }
    text
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
