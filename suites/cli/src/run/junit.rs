//! junit.xml: one suite for each area. Skipped and not supported are `skipped`, inconclusive is an `error`.

use std::{collections::BTreeMap, fs::File, path::Path, time::Duration};

use anyhow::Context as _;
use harness::{report::CaseReport, verdict::Verdict};
use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus, TestSuite};

use super::report::Report;

pub(super) fn write(report: &Report, file: &Path) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", file.display());
    let out = File::create(file).with_context(failed)?;
    document(report).serialize(out).with_context(failed)
}

fn document(report: &Report) -> quick_junit::Report {
    let mut areas: BTreeMap<&str, Vec<&CaseReport>> = BTreeMap::new();
    for case in &report.cases {
        areas.entry(&case.area).or_default().push(case);
    }
    let mut document = quick_junit::Report::new("plumbline");
    document.set_time(Duration::from_secs_f64(report.seconds));
    for (area, cases) in areas {
        let mut suite = TestSuite::new(area);
        for (name, value) in [
            ("provider", &report.cluster.provider),
            ("target", &report.cluster.target),
            ("kernel", &report.cluster.kernel),
            ("limits", &report.limits.to_string()),
        ] {
            suite.add_property(Property::new(name, value));
        }
        suite.set_time(Duration::from_secs_f64(
            cases.iter().map(|case| case.seconds).sum(),
        ));
        suite.add_test_cases(cases.into_iter().map(test_case));
        document.add_test_suite(suite);
    }
    document
}

fn test_case(case: &CaseReport) -> TestCase {
    let mut status = match &case.verdict {
        Verdict::Pass => TestCaseStatus::success(),
        Verdict::Fail { .. } => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Verdict::Inconclusive { .. } => TestCaseStatus::non_success(NonSuccessKind::Error),
        Verdict::Skipped { .. } | Verdict::NotSupported { .. } => TestCaseStatus::skipped(),
    };
    if case.verdict != Verdict::Pass {
        status
            .set_type(case.verdict.name())
            .set_message(case.verdict.why());
        let details = details(case);
        if !details.is_empty() {
            status.set_description(details);
        }
    }
    let mut test = TestCase::new(&*case.id, status);
    test.set_classname(&*case.area)
        .set_time(Duration::from_secs_f64(case.seconds));
    test.add_property(Property::new("id", &*case.id));
    for claim in &case.claims {
        test.add_property(Property::new("claim", &**claim));
    }
    test.add_property(Property::new("tier", &*case.tier));
    test.add_property(Property::new("verdict", case.verdict.name()));
    test.add_property(Property::new("seed", case.seed.to_string()));
    test.add_property(Property::new("replay", &*case.replay));
    for axis in &case.axes_not_enabled {
        test.add_property(Property::new("axis-not-enabled", &**axis));
    }
    if let Some(evidence) = &case.evidence {
        test.add_property(Property::new("evidence", evidence.to_string_lossy()));
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
fn details(case: &CaseReport) -> String {
    let mut text = String::new();
    for axis in case.axes.iter().filter(|axis| axis.verdict != Verdict::Pass) {
        text += &format!("[{}] {}\n", axis.name, axis.verdict);
        for finding in &axis.findings {
            text += &format!("  {finding}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use harness::{limits::Limits, report::AxisReport};
    use lab::cluster::{Description, Node};

    use super::{
        super::process::{Settings, without_run},
        *,
    };

    #[test]
    fn only_a_pass_is_a_success() {
        let verdicts = [
            Verdict::Pass,
            Verdict::Fail {
                why: "1 of 200 refused".into(),
            },
            Verdict::Inconclusive {
                why: "no fence".into(),
            },
            Verdict::Skipped { why: "1 node".into() },
            Verdict::NotSupported {
                why: "no hook".into(),
            },
        ];
        let settings = Settings {
            lab: "lab".into(),
            run: "run".into(),
            seed: 7,
            target: " --mutant x".into(),
            timeout_scale: 1.0,
            out: "out".into(),
            keep: false,
            jobs: 1,
            interrupted: Default::default(),
        };
        // Two of one area, and one of each of others.
        let ids = [
            "release-prefix-empty-list",
            "release-prefix-null-slice",
            "empty-refill-no-restart",
            "clusterip-from-pod",
            "clusterip-no-endpoints-refused",
        ];
        let chosen = ids.map(|id| cases::find(id).expect("a case"));
        let mut cases: Vec<CaseReport> = chosen
            .iter()
            .zip(verdicts)
            .map(|(case, verdict)| without_run(case, &settings, verdict))
            .collect();
        cases[1].axes = vec![AxisReport {
            name: "IPv4, 1 shared".into(),
            verdict: cases[1].verdict.clone(),
            findings: Vec::new(),
        }];
        let cluster = Description {
            provider: "lab".into(),
            target: "reference".into(),
            kernel: "6.1".into(),
            nodes: vec![Node {
                name: "node1".into(),
                addresses: Vec::new(),
            }],
            capabilities: Default::default(),
        };
        let report = Report::new(cluster, Limits::default(), 7, Duration::from_secs(3), cases);
        assert!(report.failed());
        let xml = document(&report).to_string().unwrap();
        for expected in [
            "<testsuites name=\"plumbline\" tests=\"5\" skipped=\"2\" failures=\"1\" errors=\"1\"",
            "<testsuite name=\"A release isolation\" tests=\"2\"",
            "<failure message=\"1 of 200 refused\" type=\"fail\">[IPv4, 1 shared] fail: 1 of 200 refused",
            "<error message=\"no fence\" type=\"inconclusive\"",
            "<skipped message=\"1 node\" type=\"skipped\"",
            "<skipped message=\"no hook\" type=\"not-supported\"",
            "<property name=\"claim\" value=\"release-prefix-empty-list\"",
            "<property name=\"seed\" value=\"7\"",
            "--seed 7 --mutant x\"",
        ] {
            assert!(xml.contains(expected), "{expected}\nis not in\n{xml}");
        }
    }
}
