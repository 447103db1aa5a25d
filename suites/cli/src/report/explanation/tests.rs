//! Explanations of real failures of mutants, each a case's report, history and attempts cut down to what it is made of,
//! and of findings that are made up.

use std::{fs, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use oracle::history::{Outcome, Stage, Transport};
use serde_json::{Value, json};

use super::*;

/// Each a JSON line for the case's report, its events and its attempts.
const FIXTURES: [(&str, &str); 6] = [
    ("backends-lost", include_str!("tests/backends_lost.jsonl")),
    ("sockets-closed", include_str!("tests/sockets_closed.jsonl")),
    (
        "silent-instead-of-refused",
        include_str!("tests/silent_instead_of_refused.jsonl"),
    ),
    ("stale-program", include_str!("tests/stale_program.jsonl")),
    ("wrong-source", include_str!("tests/wrong_source.jsonl")),
    ("not-emptied", include_str!("tests/not_emptied.jsonl")),
];

fn write(file: &Path, lines: &[&str]) {
    let mut file = GzEncoder::new(fs::File::create(file).unwrap(), Compression::fast());
    writeln!(file, "{}", lines.join("\n")).unwrap();
    file.finish().unwrap();
}

/// What is said of a case that left this.
fn of_fixture(fixture: &str) -> Explanation {
    let (report, rest) = fixture.split_once('\n').expect("a report");
    let (attempts, events): (Vec<&str>, Vec<&str>) = rest
        .lines()
        .partition(|line| line.contains(r#""event":"attempt""#));
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join(HISTORY), &events);
    write(&folder.path().join(ATTEMPTS), &attempts);
    let report = CaseReport {
        evidence: Some(folder.path().to_owned()),
        ..serde_json::from_str(report).unwrap()
    };
    let evidence = format!("evidence/{}", report.id);
    explanation(&report, Some(&evidence))
        .unwrap()
        .expect("an explanation")
}

fn shown(explanation: &Explanation) -> String {
    let Explanation {
        expected,
        happened,
        event,
        next,
    } = explanation;
    let event = event.as_deref().unwrap_or("-");
    format!("expected: {expected}\nhappened: {happened}\nevent:    {event}\nnext:     {next}\n")
}

#[test]
fn failures_of_mutants_explain_themselves() {
    for (name, fixture) in FIXTURES {
        insta::assert_snapshot!(name, shown(&of_fixture(fixture)));
    }
}

/// Codes of the catalogue, names that the suite has made up, and errors of calls.
#[test]
fn explanations_have_no_jargon() {
    let of_fixtures = FIXTURES.map(|(_, fixture)| of_fixture(fixture));
    let of_made_up = made_up().map(|(_, axis)| explained(axis));
    for explanation in of_fixtures.iter().chain(&of_made_up) {
        let Explanation {
            expected,
            happened,
            event,
            ..
        } = explanation;
        let event = event.as_deref().unwrap_or_default();
        for text in [expected.as_str(), happened, event] {
            for code in [
                "{",
                "[",
                "@",
                "/TCP",
                "/UDP",
                "T_",
                "VIP",
                "b_",
                "p5a01c2",
                "fence",
                "REFUSE",
                "NONE",
                "ECONN",
                "handshake",
                "nonce",
                "outside:",
                "vantage",
                "culprit",
                "victim",
            ] {
                assert!(!text.contains(code), "{code}: {text}");
            }
            let mut words = text.split(|edge: char| !edge.is_alphanumeric());
            assert!(
                !words.any(|word| ["C", "V", "ps", "pr", "h", "x"].contains(&word)),
                "{text}"
            );
            let is_sentence = text.is_empty()
                || (text.ends_with('.') && text.starts_with(|first: char| !first.is_ascii_lowercase()));
            assert!(is_sentence && text.len() < 320, "{text}");
        }
    }
}

#[test]
fn a_name_of_a_backend_that_shares_its_address_is_left_out() {
    let of = |servers: &[&str]| {
        let line = |server: &&str| {
            let backend = json!({
                "time_us": 1, "event": "backend", "server": server, "node": "n", "addresses": ["10.0.0.1"],
            });
            backend.to_string()
        };
        let lines: Vec<String> = servers.iter().map(line).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join(HISTORY), &lines);
        let events = Events::read(folder.path()).unwrap();
        events.server("10.0.0.1".parse().unwrap()).map(str::to_owned)
    };
    assert_eq!(of(&["b1.p"]).as_deref(), Some("b1.p"));
    assert_eq!(of(&["b1.p", "b2.p"]), None);
}

#[test]
fn a_case_that_passed_or_decided_nothing_has_no_explanation() {
    let (_, axis) = &made_up()[0];
    for verdict in ["pass", "inconclusive", "skipped", "not-supported"] {
        let report = report(verdict, std::slice::from_ref(axis));
        assert_eq!(explanation(&report, None).unwrap(), None, "{verdict}");
    }
    assert!(
        explanation(&report("fail", std::slice::from_ref(axis)), None)
            .unwrap()
            .is_some()
    );
}

#[test]
fn findings_without_a_history_are_told_as_far_as_they_go() {
    for (name, axis) in made_up() {
        insta::assert_snapshot!(name, shown(&explained(axis)));
    }
}

#[test]
fn the_earliest_breakage_is_told_and_of_one_second_the_largest() {
    let at = |first_us: u64, outside: usize, what: &str| {
        let probes = |permitted: &str| json!({ "what": "probes", "permitted": permitted });
        let mut counted = match what {
            "probes" => probes("refuse"),
            _ => {
                json!({ "what": "unreached", "permitted": { "serves": ["b1/TCP/1"] }, "missing": ["b1/TCP/1"] })
            }
        };
        let more = json!({
            "dialled": { "client": "outside", "target": "t", "transport": "TCP", "destination": "10.0.0.1:80" },
            "outside": outside, "of": 200, "endings": [[{ "how": "silent" }, outside]],
            "first_us": first_us, "last_us": first_us, "until_us": first_us + 9_000_000,
        });
        for (name, value) in more.as_object().unwrap() {
            counted[name] = value.clone();
        }
        counted
    };
    let many = axis("many", &[finding(Some(at(4_900_000, 7, "probes")))]);
    let few = axis("few", &[finding(Some(at(4_100_000, 3, "probes")))]);
    let late = axis("late", &[finding(Some(at(8_000_000, 150, "probes")))]);
    let unreached = axis("unreached", &[finding(Some(at(1_000_000, 0, "unreached")))]);
    let untold = axis("untold", &[finding(None)]);
    let report = report("fail", &[untold, unreached, late, few, many]);
    let told = explanation(&report, None).unwrap().unwrap();
    assert_eq!(
        told.happened,
        "At 4.9 s, 7 of 200 connections from outside the cluster to t timed out. 4 other axes failed too."
    );
    assert_eq!(
        (told.event, told.next.as_str()),
        (None, "To run it again: plumbline run")
    );
}

fn finding(counted: Option<Value>) -> Value {
    let mut finding = json!({
        "weight": "violation", "subject": "s", "expected": "e", "found": "f", "first": [],
    });
    if let Some(counted) = counted {
        finding["counted"] = counted;
    }
    finding
}

fn axis(name: &str, findings: &[Value]) -> Value {
    json!({ "name": name, "verdict": "fail", "why": "w", "findings": findings })
}

fn report(verdict: &str, axes: &[Value]) -> CaseReport {
    serde_json::from_value(json!({
        "id": "c", "area": "a", "claims": ["c"], "tier": "core", "verdict": verdict, "why": "w", "seed": 1,
        "replay": "plumbline run", "started_us": 0, "seconds": 1.0, "axes": axes, "axes_not_enabled": [],
        "recorded": {}, "recoveries": [], "warnings": [],
    }))
    .unwrap()
}

fn explained(axis: Value) -> Explanation {
    explanation(&report("fail", &[axis]), None)
        .unwrap()
        .expect("an explanation")
}

/// Failures of what has no window: a trap, readiness, a write that does not come into force, and findings by text
/// alone.
fn made_up() -> [(&'static str, Value); 7] {
    let attempt = Attempt {
        start_us: 31_000_000,
        end_us: 31_000_100,
        client: "host@node1".into(),
        target: "[connect4] shop (10.96.0.7:80)".into(),
        transport: Transport::Tcp,
        destination: "10.96.0.7:80".parse().unwrap(),
        local: None,
        nonce: "n".into(),
        exchange: None,
        fragments: None,
        outcome: Outcome::Timeout {
            stage: Stage::Receive,
        },
    };
    let later = Attempt {
        start_us: 62_000_000,
        ..attempt.clone()
    };
    let counts =
        |what, all: &[&Attempt]| serde_json::to_value(Counted::attempts(what, all, all, Ending::of)).unwrap();
    let trap = What::Trap {
        server: "old.p5a01c2-000".into(),
    };
    let sources = serde_json::to_value(Counted::attempts(
        What::Sources {
            own: "10.1.0.7".parse().unwrap(),
        },
        &[&attempt],
        &[&attempt, &later],
        |_| Ending::Seen {
            source: "192.0.2.1".parse().unwrap(),
        },
    ))
    .unwrap();
    let ready = What::Ready { node: "node1".into() };
    let change = |came| {
        serde_json::to_value(Counted {
            what: What::Change {
                node: "node2".into(),
                limit_ms: 30_000,
                came,
            },
            dialled: None,
            outside: 1,
            of: 1,
            endings: Vec::new(),
            first_us: 12_300_000,
            last_us: 52_400_000,
            until_us: 52_400_000,
        })
        .unwrap()
    };
    let told = |subject: &str, expected: &str, found: &str| {
        let mut finding = finding(None);
        finding["subject"] = subject.into();
        finding["expected"] = expected.into();
        finding["found"] = found.into();
        finding
    };
    [
        (
            "trap",
            axis("connect4", &[finding(Some(counts(trap, &[&attempt])))]),
        ),
        ("sources", axis("IPv4, cip", &[finding(Some(sources))])),
        (
            "ready",
            axis(
                "ready-means-served, node1",
                &[finding(Some(counts(ready, &[&attempt, &later])))],
            ),
        ),
        (
            "change-late",
            axis("the fence on node2", &[finding(Some(change(true)))]),
        ),
        (
            "change-never",
            axis("the fence on node2", &[finding(Some(change(false)))]),
        ),
        (
            "by-text",
            axis(
                "clsact egress",
                &[told(
                    "the program of another owner at clsact egress, after the agent's start",
                    "attached, and counting",
                    "detached",
                )],
            ),
        ),
        (
            "by-text-of-a-stream",
            axis(
                "IPv4",
                &[told(
                    "[IPv4, 10 shared] t-ext (10.96.0.7:80) TCP from pod@node1",
                    "at least 25 % of the answers from each backend",
                    "3 of 200 from b1.p5a01c2-000/TCP/8080",
                )],
            ),
        ),
    ]
}
