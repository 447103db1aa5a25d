//! A report with every field, and the golden files of all formats, compared whole.

use std::collections::BTreeMap;

use crate::terminal::Verbosity;

use super::{
    files,
    format::{Axis, Case, Cluster, Counts, Explanation, FORMAT, Finding, Report, Run, Undecided, Verdict},
    html, junit, markdown,
    software::tests::example,
    timeline::{Failure, Lane, Mark, MarkKind, Span, Timeline},
};

/// A report with a case of each verdict.
pub(crate) fn report() -> Report {
    let cases = vec![
        tried_again(),
        failed(),
        joint(),
        case("release-name-lattice", Verdict::Inconclusive),
        Case {
            explanation: None,
            exempt: Some("clusterip-from-pod: its hairpin is off, see <https://example.org/1>".into()),
            ..case("clusterip-from-pod", Verdict::Fail)
        },
        case("empty-refill-no-restart", Verdict::Skipped),
        case("clusterip-no-endpoints-refused", Verdict::NotSupported),
    ];
    Report {
        format: FORMAT.to_owned(),
        plumbline: "0.1.0".to_owned(),
        started: "2026-05-04T03:02:01Z".to_owned(),
        seconds: 301.5,
        interrupted: false,
        cluster: Cluster {
            provider: "lab".into(),
            target: "mutant:stale-kept".into(),
            kernel: "6.1.0".into(),
            families: vec!["IPv4".into()],
            nodes: BTreeMap::from([
                ("node1".to_owned(), vec!["172.30.0.11".parse().unwrap()]),
                (
                    "node2".to_owned(),
                    vec!["172.30.0.12".parse().unwrap(), "fd00::12".parse().unwrap()],
                ),
            ]),
            capabilities: vec!["ipv4".into(), "node".into()],
            features: vec!["loadbalancer".into()],
            axes_not_enabled: vec!["IPv6: the cluster does not declare it".into()],
            deviations_not_applied: vec![
                "slice-union: known of versions <0.1.0, and the version of the agents is not known".into(),
            ],
            software: example(),
        },
        run: Run {
            seed: u64::MAX,
            shuffled: true,
            profile: "lab".into(),
            labs: 3,
            jobs: 2,
            tries: 2,
            evidence: "failed".into(),
            rerun: false,
        },
        limits: BTreeMap::from([("T_ep_seconds".to_owned(), 30.0), ("scale".to_owned(), 1.5)]),
        counts: Counts::of(&cases),
        cases,
    }
}

fn case(id: &str, verdict: Verdict) -> Case {
    let known = cases::find(id).expect("a case");
    let why = match verdict {
        Verdict::Pass => "",
        Verdict::Fail => "1 of 1 axes; IPv4: 3 of 200 refused",
        Verdict::Inconclusive => "the fence of node2: not within 30s",
        Verdict::Skipped => "needs 2 nodes (there are 1), which lab does not have",
        Verdict::NotSupported => "mutant:stale-kept does not declare the feature x",
    };
    let ran = matches!(verdict, Verdict::Pass | Verdict::Fail | Verdict::Inconclusive);
    let axis = |name: &str| Axis {
        name: name.to_owned(),
        verdict,
        why: why.to_owned(),
        findings: Vec::new(),
    };
    Case {
        id: id.to_owned(),
        area: known.area.to_owned(),
        claims: BTreeMap::from([(
            id.to_owned(),
            cases::claims::find(id).expect("a claim").sentence.clone(),
        )]),
        tier: known.tier.to_string(),
        verdict,
        why: why.to_owned(),
        explanation: None,
        exempt: None,
        started: "2026-05-04T03:02:03.5Z".to_owned(),
        seconds: if ran { 51.25 } else { 0.0 },
        replay: format!("plumbline run {id} --seed 7"),
        axes: if ran {
            vec![
                axis("IPv4, 1 shared, victim older"),
                axis("IPv4, 10 shared, culprit older"),
            ]
        } else {
            Vec::new()
        },
        axes_not_enabled: Vec::new(),
        recorded: BTreeMap::from([("delay at most".to_owned(), "12 ms".to_owned())]),
        warnings: Vec::new(),
        evidence: ran.then(|| format!("evidence/{id}")),
        timeline: None,
        undecided: Vec::new(),
    }
}

/// A pass at the second try.
fn tried_again() -> Case {
    let id = "release-prefix-empty-list";
    let first = Undecided {
        why: "IPv4: t-ext: 3 of 200 failed on the machine <client or backend did not run in time>".into(),
        seconds: 40.5,
        evidence: Some(format!("evidence/{id}.1")),
    };
    Case {
        undecided: vec![first],
        ..case(id, Verdict::Pass)
    }
}

/// A claim that is judged over other cases.
fn joint() -> Case {
    let claim = cases::claims::joint::find("stale-no-reboot").expect("a claim");
    let name = "stale-sock-legacy-multi: connect4";
    let why = "node1 after connect4: expected at most one start of the agent, found 2 starts";
    let found = Finding {
        subject: "node1 after connect4".into(),
        expected: "at most one start of the agent".into(),
        found: "2 starts".into(),
        attempts: Vec::new(),
    };
    let axis = |name: &str, verdict, findings: &[Finding]| Axis {
        name: name.to_owned(),
        verdict,
        why: if findings.is_empty() {
            String::new()
        } else {
            why.to_owned()
        },
        findings: findings.to_vec(),
    };
    Case {
        id: claim.id.to_string(),
        area: claim.area().expect("its area").name.clone(),
        claims: BTreeMap::from([(claim.id.to_string(), claim.sentence.clone())]),
        tier: claim.tier.to_string(),
        why: format!("1 of 2 axes; {name}: {why}"),
        replay: format!("plumbline run {} --seed 7", claim.id),
        seconds: 0.0,
        axes: vec![
            axis(name, Verdict::Fail, &[found]),
            axis("stale-map-pin: IPv4, pins as they were", Verdict::Pass, &[]),
        ],
        recorded: BTreeMap::from([(name.to_owned(), "starts of the agent 2".to_owned())]),
        evidence: None,
        ..case("stale-map-pin", Verdict::Fail)
    }
}

fn failed() -> Case {
    let span = |from, to, outcomes: &[(&str, u32)]| Span {
        from,
        to,
        outcomes: outcomes
            .iter()
            .map(|(words, count)| ((*words).to_owned(), *count))
            .collect(),
        wrong: 0,
    };
    let old = "answered by old.p1/TCP/8080";
    let new = "answered by new.p2/TCP/8080";
    let refused = "ECONNREFUSED from connect";
    let silent = "nothing, waiting in the handshake";
    let wrong = |span: Span| Span {
        wrong: span.outcomes.values().sum(),
        ..span
    };
    let lane = |client: &str, spans: Vec<Span>| Lane {
        client: client.into(),
        target: "[connect4] shop (10.96.0.7:80)".into(),
        transport: "TCP".into(),
        failure: spans.iter().any(|span| span.wrong > 0).then(|| Failure {
            from: 12.0,
            to: 20.0,
            expected: "every probe answered by new.p2/TCP/8080".into(),
            found: "wrong answers, 160 of 160 outside: 160 answered by old.p1/TCP/8080".into(),
        }),
        spans,
    };
    let mark = |at, kind, text: &str| Mark {
        at,
        kind,
        text: text.into(),
    };
    let explanation = Explanation {
        expected: "Every connection to shop is answered by new.".into(),
        happened: "From 9.5 s on, 200 of 203 connections from the host network of node1 to shop were still answered by \
                   old. 1 other client failed too."
            .into(),
        event: Some(
            "Two seconds before, the agent of node1 had been killed; then new had replaced old in shop. The \
             EndpointSlice of shop lists new, not old."
                .into(),
        ),
        next: "The same as cilium/cilium#1 <or another>? Each attempt: attempts.jsonl.gz in evidence/stale-sock-legacy-multi. \
               To run it again: plumbline run stale-sock-legacy-multi --seed 7"
            .into(),
    };
    Case {
        explanation: Some(explanation),
        why: "1 of 1 axes; connect4: the trap answered".into(),
        axes: vec![Axis {
            name: "connect4".into(),
            verdict: Verdict::Fail,
            why: "the trap answered".into(),
            findings: vec![Finding {
                subject: "pod@node1 to [connect4] shop (10.96.0.7:80), TCP".into(),
                expected: "every probe answered by new.p2/TCP/8080".into(),
                found: "200 × answered by old.p1/TCP/8080".into(),
                attempts: vec!["at 9.5 pod@node1 10.1.0.3:1024 → 10.96.0.7:80 TCP: answered by <old>".into()],
            }],
        }],
        warnings: vec!["clean-up: namespaces are not gone within 30s".into()],
        timeline: Some(Timeline {
            seconds: 20.0,
            marks: vec![
                mark(0.0, MarkKind::Phase, "clients and fence"),
                mark(2.0, MarkKind::Phase, "generation 1: the VIP serves b_old"),
                mark(
                    8.0,
                    MarkKind::Fault,
                    "the agent of node1 is killed, its programs stay",
                ),
                mark(8.2, MarkKind::Fault, "b_old leaves the slice"),
                mark(12.0, MarkKind::Phase, "generation 2 is ready"),
            ],
            lanes: vec![
                lane(
                    "host@node1",
                    vec![
                        span(2.0, 8.0, &[(old, 120)]),
                        span(8.0, 12.0, &[(silent, 3)]),
                        wrong(span(12.0, 20.0, &[(old, 160)])),
                    ],
                ),
                lane(
                    "pod@node1",
                    vec![
                        span(2.0, 8.0, &[(old, 120)]),
                        span(8.0, 12.0, &[(refused, 80)]),
                        span(12.0, 14.0, &[(new, 30), (old, 10)]),
                        span(14.0, 20.0, &[(new, 120)]),
                    ],
                ),
                lane(
                    "pod@node2",
                    vec![span(2.0, 8.0, &[(old, 120)]), span(8.0, 20.0, &[(new, 240)])],
                ),
            ],
            more_lanes: 1,
        }),
        ..case("stale-sock-legacy-multi", Verdict::Fail)
    }
}

#[test]
fn the_yaml_is_golden_and_reads_as_what_was_written() {
    let text = files::yaml(&report()).unwrap();
    insta::assert_snapshot!("report.yaml", text);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let mut alone = report();
    for case in &mut alone.cases {
        case.timeline = None;
    }
    assert_eq!(files::read(file.path()).unwrap(), alone);
}

/// A page is one file: it loads nothing.
pub(crate) fn needs_nothing_from_elsewhere(page: &str) {
    for outside in ["src=", "url(h", "url(/", "@import", "<link", "http://", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

/// A page with one element in each line, without its style.
pub(crate) fn readable(page: &str) -> String {
    let (before, style) = page.split_once("<style>").expect("a style");
    let (_, after) = style.split_once("</style>").expect("its end");
    format!("{before}{after}").replace("><", ">\n<")
}

#[test]
fn the_html_is_golden_and_needs_nothing_from_elsewhere() {
    let text = html::render(&report());
    needs_nothing_from_elsewhere(&text);
    assert!(
        text.contains("answered by &lt;old&gt;"),
        "what others say is text"
    );
    insta::assert_snapshot!("report.html", readable(&text));
}

#[test]
fn the_junit_is_golden() {
    insta::assert_snapshot!(
        "junit.xml",
        junit::render(&report(), std::path::Path::new("out")).unwrap()
    );
}

#[test]
fn the_markdown_is_golden() {
    insta::assert_snapshot!("summary.md", markdown::render(&report()));
}

#[test]
fn the_table_is_golden() {
    let of = |verbosity| super::text::table(&report(), std::path::Path::new("out"), verbosity, 80);
    for (name, verbosity) in [
        ("table", Verbosity::Normal),
        ("table.verbose", Verbosity::Verbose),
    ] {
        insta::assert_snapshot!(name, anstream::adapter::strip_str(&of(verbosity)).to_string());
    }
}

#[test]
fn the_schema_of_the_repository_is_the_formats() {
    let expected = super::command::schema().unwrap();
    assert_eq!(
        include_str!("../../../reports/schema/plumbline.report-v2.json"),
        expected,
        "`plumbline report schema > suites/reports/schema/plumbline.report-v2.json`"
    );
}

#[test]
fn a_report_that_contradicts_itself_or_is_of_another_format_is_refused() {
    let text = files::yaml(&report()).unwrap();
    for (from, to, part) in [
        ("plumbline.report/v2", "plumbline.report/v9", "v9"),
        (
            "inconclusive: 1",
            "inconclusive: 0",
            "counts are not those of its cases: expected pass 1, fail 2, inconclusive 1, ",
        ),
        ("verdict: pass", "verdict: passed", "passed"),
        ("interrupted: false", "interupted: false", "interupted"),
        ("seconds: 301.5", "seconds: long", "long"),
        ("id: release-name-lattice", "id: clusterip-from-pod", "twice"),
    ] {
        assert!(text.contains(from), "{from}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text.replacen(from, to, 1)).unwrap();
        let error = format!("{:#}", files::read(file.path()).unwrap_err());
        assert!(
            error.contains(part) && error.contains(FORMAT),
            "{from} → {to}: {error}"
        );
    }
}

#[test]
fn only_a_pass_without_an_exemption_is_a_pass() {
    let report = report();
    assert!(report.failed());
    let counts = &report.counts;
    assert_eq!(
        (counts.pass, counts.fail, counts.inconclusive, counts.exempt),
        (1, 2, 1, 1)
    );
    let exempt_pass = Case {
        explanation: None,
        exempt: Some("c: why".into()),
        ..case("clusterip-from-pod", Verdict::Pass)
    };
    assert_eq!(
        (
            Counts::of(std::slice::from_ref(&exempt_pass)).pass,
            exempt_pass.label()
        ),
        (0, "exempt")
    );
    assert!(!exempt_pass.fails_the_run());
}

#[test]
fn timelines_lie_beside_the_report_and_are_found_wherever_it_is_moved() {
    let folder = tempfile::tempdir().unwrap();
    let (made, moved) = (folder.path().join("made"), folder.path().join("moved"));
    let mut report = report();
    // Long timelines: more than the YAML reader accepts by default.
    for timeline in report.cases.iter_mut().filter_map(|case| case.timeline.as_mut()) {
        let mut lane = timeline.lanes[0].clone();
        let span = lane.spans[0].clone();
        lane.spans.resize(160, span);
        timeline.lanes = vec![lane; 40];
    }
    for case in report.cases.iter().filter_map(|case| case.evidence.as_ref()) {
        std::fs::create_dir_all(made.join(case)).unwrap();
    }
    files::write(&report, &made).unwrap();
    let yaml = std::fs::read_to_string(made.join(files::YAML)).unwrap();
    assert!(
        !yaml.contains("spans") && !yaml.contains(made.to_str().unwrap()),
        "{yaml}"
    );
    std::fs::rename(&made, &moved).unwrap();
    let mut read = files::read(&moved.join(files::YAML)).unwrap();
    assert_ne!(read, report, "they are not in it");
    files::read_timelines(&mut read, &moved).unwrap();
    assert_eq!(read, report);
}

#[test]
fn evidence_that_is_not_within_the_reports_folder_is_refused() {
    let text = files::yaml(&report()).unwrap();
    for from in [
        "evidence/clusterip-from-pod",
        "evidence/release-prefix-empty-list.1",
    ] {
        assert!(text.contains(from), "{from}");
        for to in ["/tmp/out/evidence", "../evidence", "evidence/../../x"] {
            let error = files::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains("relative to the report's folder"), "{to}: {error}");
        }
    }
}
