//! junit.xml, as Jenkins' schema (`junit.xsd` has what it demands), GitLab and GitHub actions read it: one suite for
//! each area. Skipped, not supported and exempt are `skipped`, inconclusive is an `error`. A try before the last one is
//! a `flakyError` of a pass and a `rerunError` of any other verdict, as Maven Surefire writes them.
//!
//! The schema has no properties of a single case, so what is known about one is in its `system-out`. Evidence is named
//! there as `[[ATTACHMENT|path]]`, with paths that are relative to the working directory where they can be.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use harness::history::HISTORY;
use jiff::Timestamp;
use quick_xml::se::Serializer;
use serde::Serialize;

use super::{
    format::{Case, Explanation, Report, Verdict},
    timeline,
};
use crate::terminal;

/// Begins the class of each case, which readers show as its package.
const PACKAGE: &str = "plumbline";
/// Limit of a message: readers show it in a table.
const MESSAGE: usize = 200;
/// Limit of bytes of the text of one result; the evidence has all.
const TEXT: usize = 8_000;
/// Evidence that is attached where it exists, in the folder of a case.
const ATTACHED: [&str; 2] = [timeline::FILE, HISTORY];

/// The text of the file. Attachments are files that exist below `folder`, the report's.
///
/// # Errors
/// The report has something that XML cannot express.
pub(crate) fn render(report: &Report, folder: &Path) -> anyhow::Result<String> {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let mut serializer = Serializer::new(&mut text);
    serializer.indent(' ', 2);
    let written = Suites::of(report, folder).serialize(serializer);
    written.context("failed to write the report as JUnit XML")?;
    text.push('\n');
    Ok(text)
}

#[derive(Serialize)]
#[serde(rename = "testsuites")]
struct Suites {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@tests")]
    tests: usize,
    #[serde(rename = "@failures")]
    failures: usize,
    #[serde(rename = "@errors")]
    errors: usize,
    #[serde(rename = "@time")]
    time: String,
    testsuite: Vec<Suite>,
}

#[derive(Serialize)]
struct Suite {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@tests")]
    tests: usize,
    #[serde(rename = "@failures")]
    failures: usize,
    #[serde(rename = "@errors")]
    errors: usize,
    #[serde(rename = "@skipped")]
    skipped: usize,
    #[serde(rename = "@time")]
    time: String,
    /// When the first case began, in UTC: the schema has no zone.
    #[serde(rename = "@timestamp", skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    /// The nodes.
    #[serde(rename = "@hostname")]
    hostname: String,
    properties: Properties,
    testcase: Vec<TestCase>,
}

#[derive(Serialize)]
struct Properties {
    property: Vec<Property>,
}

#[derive(Serialize)]
struct Property {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@value")]
    value: String,
}

#[derive(Serialize)]
struct TestCase {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@classname")]
    classname: String,
    #[serde(rename = "@time")]
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Outcome>,
    #[serde(rename = "flakyError")]
    flaky: Vec<Outcome>,
    #[serde(rename = "rerunError")]
    rerun: Vec<Outcome>,
    #[serde(rename = "system-out")]
    system_out: String,
}

#[derive(Serialize)]
struct Outcome {
    #[serde(rename = "@message")]
    message: String,
    #[serde(rename = "@type")]
    kind: &'static str,
    #[serde(rename = "$text", skip_serializing_if = "String::is_empty")]
    text: String,
}

impl Suites {
    fn of(report: &Report, folder: &Path) -> Self {
        let mut areas: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
        for case in &report.cases {
            areas.entry(&case.area).or_default().push(case);
        }
        let suites: Vec<Suite> = areas
            .into_iter()
            .map(|(area, cases)| Suite::of(report, area, &cases, folder))
            .collect();
        Self {
            name: marked(report, PACKAGE),
            tests: suites.iter().map(|suite| suite.tests).sum(),
            failures: suites.iter().map(|suite| suite.failures).sum(),
            errors: suites.iter().map(|suite| suite.errors).sum(),
            time: seconds(report.seconds),
            testsuite: suites,
        }
    }
}

impl Suite {
    fn of(report: &Report, area: &str, cases: &[&Case], folder: &Path) -> Self {
        let nodes: Vec<&str> = report.cluster.nodes.keys().map(String::as_str).collect();
        let testcase: Vec<TestCase> = cases.iter().map(|case| TestCase::of(case, folder)).collect();
        let count = |is_so: fn(&TestCase) -> bool| testcase.iter().filter(|case| is_so(case)).count();
        Self {
            name: marked(report, area),
            tests: testcase.len(),
            failures: count(|case| case.failure.is_some()),
            errors: count(|case| case.error.is_some()),
            skipped: count(|case| case.skipped.is_some()),
            time: seconds(cases.iter().map(|case| case.seconds).sum()),
            timestamp: cases.iter().filter_map(|case| timestamp(&case.started)).min(),
            hostname: clean(&nodes.join(",")),
            properties: Properties {
                property: properties(report),
            },
            testcase,
        }
    }
}

fn properties(report: &Report) -> Vec<Property> {
    let cluster = &report.cluster;
    let mut all: Vec<(String, String)> = [
        ("provider", cluster.provider.clone()),
        ("target", cluster.target.clone()),
        ("kernel", cluster.kernel.clone()),
        ("profile", report.run.profile.clone()),
        ("seed", report.run.seed.to_string()),
        ("plumbline", report.plumbline.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    for (name, value) in cluster.software.lines() {
        all.push((name.to_lowercase().replace(' ', "-"), value));
    }
    for axis in &cluster.axes_not_enabled {
        all.push(("axis-not-enabled".to_owned(), axis.clone()));
    }
    for (name, value) in &report.limits {
        all.push((format!("limit.{name}"), value.to_string()));
    }
    let property = |(name, value): (String, String)| Property {
        name: clean(&name),
        value: clean(&terminal::one_line(&value)),
    };
    all.into_iter().map(property).collect()
}

impl TestCase {
    fn of(case: &Case, folder: &Path) -> Self {
        let label = case.label();
        let why = match &case.exempt {
            Some(exempt) if label == "exempt" => {
                format!("{exempt} ({} {})", case.verdict.name(), case.why)
            }
            _ => match &case.explanation {
                Some(explanation) if case.verdict == Verdict::Fail => explanation.happened.clone(),
                _ => case.why.clone(),
            },
        };
        let outcome = || Outcome {
            message: clean(&terminal::cut(&terminal::one_line(&why), MESSAGE)),
            kind: label,
            text: clean(&limited(&details(case))),
        };
        let earlier = case.undecided.iter().map(|earlier| Outcome {
            message: clean(&terminal::cut(&terminal::one_line(&earlier.why), MESSAGE)),
            kind: Verdict::Inconclusive.name(),
            text: clean(&limited(&earlier.why)),
        });
        let earlier: Vec<Outcome> = earlier.collect();
        let (flaky, rerun) = match label == Verdict::Pass.name() {
            true => (earlier, Vec::new()),
            false => (Vec::new(), earlier),
        };
        let is_left_out =
            label == "exempt" || matches!(case.verdict, Verdict::Skipped | Verdict::NotSupported);
        Self {
            name: clean(&case.id),
            classname: clean(&format!("{PACKAGE}.{}", case.area)),
            time: seconds(case.seconds),
            failure: (!is_left_out && case.verdict == Verdict::Fail).then(outcome),
            error: (!is_left_out && case.verdict == Verdict::Inconclusive).then(outcome),
            skipped: is_left_out.then(outcome),
            flaky,
            rerun,
            system_out: clean(&output(case, folder)),
        }
    }
}

/// What is known about a case, and its evidence.
fn output(case: &Case, folder: &Path) -> String {
    let mut text = String::new();
    for (id, sentence) in &case.claims {
        text += &format!("claim {id}: {sentence}\n");
    }
    text += &format!("tier: {}\nverdict: {}\n", case.tier, case.label());
    for (name, value) in &case.recorded {
        text += &format!("{name}: {value}\n");
    }
    for axis in &case.axes_not_enabled {
        text += &format!("axis not enabled: {axis}\n");
    }
    for warning in &case.warnings {
        text += &format!("warning: {warning}\n");
    }
    text += &format!("run it again: {}\n", case.replay);
    if let Some(evidence) = &case.evidence {
        let evidence = folder.join(evidence);
        text += &format!("evidence: {}\n", terminal::path(&evidence));
        if case.label() != Verdict::Pass.name() {
            for file in ATTACHED.map(|name| evidence.join(name)) {
                if file.is_file() {
                    text += &format!("[[ATTACHMENT|{}]]\n", terminal::path(&file));
                }
            }
        }
    }
    text
}

/// What broke in words, and every axis that did not pass, with its findings.
fn details(case: &Case) -> String {
    let mut text = String::new();
    if let Some(Explanation {
        expected,
        happened,
        event,
        next,
    }) = &case.explanation
    {
        let event = event.iter().map(|event| ("since", event));
        let lines = [("expected", expected), ("happened", happened)].into_iter();
        for (name, words) in lines.chain(event).chain([("next", next)]) {
            text += &format!("{name}: {words}\n");
        }
        text.push('\n');
    }
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

/// At most [`TEXT`] bytes of it, whole lines where it has any.
fn limited(text: &str) -> String {
    const MORE: &str = "… report.html and the evidence have all\n";
    if text.len() <= TEXT {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(TEXT - MORE.len())];
    let kept = kept.rsplit_once('\n').map_or(kept, |(lines, _)| lines);
    format!("{kept}\n{MORE}")
}

/// Without characters that XML does not have (<https://www.w3.org/TR/xml/#charsets>): text of other programs may have
/// any.
fn clean(text: &str) -> String {
    let is_xml = |character: char| match character {
        '\t' | '\n' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        _ => !character.is_control(),
    };
    text.chars()
        .map(|character| if is_xml(character) { character } else { '\u{fffd}' })
        .collect()
}

fn marked(report: &Report, name: &str) -> String {
    clean(&match report.no_conformance() {
        Some(words) => format!("{name} ({words})"),
        None => name.to_owned(),
    })
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.3}")
}

/// A time by RFC 3339 as the schema has it: in UTC, in whole seconds, without a zone.
fn timestamp(rfc3339: &str) -> Option<String> {
    let time: Timestamp = rfc3339.parse().ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;
    use crate::report::{format::Finding, golden};

    const XSD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/junit.xsd");
    /// The version that CI's readers had when this was written.
    const JUNITPARSER: &str = "junitparser==5.0.3";

    /// A report whose texts have everything that is awkward in XML.
    fn awkward() -> Report {
        let mut report = golden::report();
        for case in &mut report.cases {
            case.recorded.insert(
                "said".into(),
                "a\u{1b}[31m ]]> & <b> \u{0}\u{ffff} \"q\" 界".into(),
            );
        }
        report.seconds = 12_345.678;
        report.run.profile = "quick".into();
        let mut more = report.cases[1].clone();
        more.id = "with-an-explanation".into();
        more.explanation = Some(Explanation {
            expected: "Every connection to t-ext is answered by b01.".into(),
            happened: "From 30.4 s on, 201 of 203 connections\nto t-ext were refused.".into(),
            event: Some("One second before, t had been emptied.".into()),
            next: "Look at <the map>.".into(),
        });
        more.axes[0].findings = vec![
            Finding {
                subject: "pod@node1 \u{7}".into(),
                expected: "界".repeat(30),
                found: "x".repeat(300),
                attempts: Vec::new(),
            };
            100
        ];
        report.cases.push(more);
        report
    }

    fn written(report: &Report) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("junit.xml");
        fs::write(&file, render(report, Path::new("out")).unwrap()).unwrap();
        (folder, file)
    }

    #[test]
    fn jenkins_accepts_the_file() {
        if !testing::programs_or_skip(&testing::current(), &["xmllint"], &[]) {
            return;
        }
        let validate = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), text).unwrap();
            let validated = Command::new("xmllint")
                .args(["--noout", "--schema", XSD])
                .arg(file.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&validated.stderr).into_owned();
            (validated.status.success(), said)
        };
        for report in [golden::report(), awkward()] {
            let text = render(&report, Path::new("out")).unwrap();
            let (is_valid, said) = validate(&text);
            assert!(is_valid, "{said}");
        }
        let text = render(&golden::report(), Path::new("out")).unwrap();
        for (from, to) in [
            ("<testsuites ", "<testsuites skipped=\"3\" "),
            ("T03:02:03\"", "T03:02:03Z\""),
            ("<system-out>", "<properties/><system-out>"),
            ("time=\"301.500\"", "time=\"301 s\""),
        ] {
            assert!(text.contains(from), "{from}");
            let (is_valid, said) = validate(&text.replacen(from, to, 1));
            assert!(!is_valid && said.contains("fails to validate"), "{to}: {said}");
        }
    }

    #[test]
    fn pythons_junitparser_reads_what_the_report_says() {
        let name = testing::current();
        if !testing::programs_or_skip(&name, &["python3", "pip"], &[]) {
            return;
        }
        let libraries = tempfile::tempdir().unwrap();
        let installed = Command::new("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--target",
            ])
            .arg(libraries.path())
            .arg(JUNITPARSER)
            .output()
            .unwrap();
        if !installed.status.success() {
            let said = String::from_utf8_lossy(&installed.stderr);
            testing::skip(
                &name,
                &format!("pip can't install {JUNITPARSER}: {}", terminal::one_line(&said)),
            );
            return;
        }
        let report = awkward();
        let (_folder, file) = written(&report);
        let script = "
import json, sys
from junitparser.xunit2 import JUnitXml
xml = JUnitXml.fromfile(sys.argv[1])
print(json.dumps([
    [suite.name, suite.timestamp, suite.hostname, {p.name: p.value for p in suite.properties()}.get('seed'),
     [[case.classname, case.name, case.time, [[r.type, r.message, r.text] for r in case.result],
       [r.message for r in case.flaky_errors()], case.system_out] for case in suite]]
    for suite in xml]))";
        let read = Command::new("python3")
            .env("PYTHONPATH", libraries.path())
            .args(["-c", script])
            .arg(file)
            .output()
            .unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let suites: serde_json::Value = serde_json::from_slice(&read.stdout).unwrap();
        let suites = suites.as_array().unwrap();
        let mut results = 0;
        for suite in suites {
            assert_eq!(
                [&suite[1], &suite[2], &suite[3]],
                ["2026-05-04T03:02:03", "node1,node2", &u64::MAX.to_string()],
                "{suite}"
            );
            for read in suite[4].as_array().unwrap() {
                results += 1;
                let case = report.cases.iter().find(|case| case.id == read[1]).unwrap();
                assert_eq!(read[0], format!("plumbline.{}", case.area));
                assert_eq!(read[2], case.seconds, "{read}");
                match case.label() {
                    "pass" => {
                        assert_eq!(read[3], serde_json::json!([]), "{read}");
                        let flaky = read[4][0].as_str().unwrap();
                        assert!(
                            flaky.ends_with("<client or backend did not run in time>"),
                            "{read}"
                        );
                    }
                    label => assert_eq!(read[3][0][0], label, "{read}"),
                }
                let said = read[5].as_str().unwrap();
                assert!(said.contains("said: a\u{fffd}[31m ]]> & <b>"), "{read}");
            }
        }
        assert_eq!(results, report.cases.len());
    }

    #[test]
    fn a_failure_is_one_line_and_eight_kilobytes_at_most() {
        let report = awkward();
        let case = TestCase::of(report.cases.last().unwrap(), Path::new("out"));
        let failure = case.failure.unwrap();
        assert_eq!(
            failure.message,
            "From 30.4 s on, 201 of 203 connections to t-ext were refused."
        );
        assert!(
            failure.text.starts_with("expected: Every connection"),
            "{}",
            failure.text
        );
        assert!(
            failure.text.len() > TEXT / 2 && failure.text.len() <= TEXT,
            "{}",
            failure.text.len()
        );
        assert!(failure.text.ends_with("have all\n"));
        let long = limited(&"界".repeat(TEXT));
        assert!(long.len() <= TEXT && long.ends_with("have all\n"));
        let mut case = report.cases[1].clone();
        case.explanation = None;
        case.why = "word ".repeat(100);
        let message = TestCase::of(&case, Path::new("out")).failure.unwrap().message;
        assert_eq!(message.chars().count(), MESSAGE);
    }

    #[test]
    fn evidence_of_what_did_not_pass_is_attached_where_it_exists() {
        let mut report = golden::report();
        let failed = report.cases[1].clone();
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let evidence = folder.path().join(failed.evidence.as_ref().unwrap());
        fs::create_dir_all(&evidence).unwrap();
        let attached = |report: &Report| {
            let text = render(report, folder.path()).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("[[ATTACHMENT|"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(attached(&report), [""; 0]);
        fs::write(evidence.join(timeline::FILE), "").unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        let expected = format!("[[ATTACHMENT|{name}/evidence/{}/timeline.yaml]]", failed.id);
        assert_eq!(attached(&report), [expected], "relative to the working directory");
        report.cases[1].verdict = Verdict::Pass;
        assert_eq!(attached(&report), [""; 0]);
    }

    #[test]
    fn an_areas_name_is_one_class() {
        for area in cases::claims::areas() {
            assert!(
                !area.name.contains('.'),
                "readers split a class at its dots: {}",
                area.name
            );
        }
    }
}
