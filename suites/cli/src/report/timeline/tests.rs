//! Timelines of made-up histories.

use std::{fs, io::Write as _};

use flate2::{Compression, write::GzEncoder};

use super::*;

fn attempt(second: u64, client: &str, outcome: &str) -> String {
    format!(
        r#"{{"time_us":{now},"event":"attempt","start_us":{start},"end_us":{now},"client":"{client}","target":"[a] t","transport":"TCP","destination":"10.0.0.1:80","local":null,"nonce":"n","outcome":{outcome}}}"#,
        now = second * 1_000_000 + 900_000,
        start = second * 1_000_000,
    )
}

fn write(file: &Path, lines: &[String]) {
    let file = fs::File::create(file).unwrap();
    let mut file = GzEncoder::new(file, Compression::fast());
    writeln!(file, "{}", lines.join("\n")).unwrap();
    file.finish().unwrap();
}

/// The timeline of a history, with attempts if they were kept.
fn timeline(events: &[String], attempts: Option<&[String]>) -> Option<Timeline> {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join(HISTORY), events);
    if let Some(attempts) = attempts {
        write(&folder.path().join(ATTEMPTS), attempts);
    }
    read(folder.path(), &[]).unwrap()
}

fn phase(second: u64, name: &str) -> String {
    format!(
        r#"{{"time_us":{},"event":"phase","name":"{name}"}}"#,
        second * 1_000_000
    )
}

/// A line of counted attempts of a phase.
fn counted(client: &str, seconds: [u64; 2], outcomes: &str) -> String {
    let [first, last] = seconds.map(|second| second * 1_000_000);
    format!(
        r#"{{"time_us":999000000,"event":"attempts","phase":"p","client":"{client}","target":"t","transport":"TCP","first_us":{first},"last_us":{last},"outcomes":{outcomes}}}"#
    )
}

const REFUSED: &str = r#"{"result":"failed","stage":"handshake","errno":"ECONNREFUSED"}"#;
const SILENT: &str = r#"{"result":"timeout","stage":"handshake"}"#;

#[test]
fn what_one_client_saw_is_one_lane_and_what_stays_the_same_is_one_span() {
    let events = [
        phase(0, "control"),
        r#"{"time_us":1000000,"event":"fault","what":"the agent of node1 is killed"}"#.to_owned(),
        r#"{"time_us":1000000,"event":"seen","kind":"Service","object":{}}"#.to_owned(),
        // Attempts that were both counted and kept are not shown twice.
        counted(
            "pod@node1",
            [0, 160],
            r#"{"ECONNREFUSED from the handshake":320}"#,
        ),
    ];
    let mut lines = Vec::new();
    // Four attempts in each second: at least one in every column.
    for quarter in 0..=640 {
        let outcome = if quarter < 320 { REFUSED } else { SILENT };
        let line = attempt(0, "pod@node1", outcome);
        lines.push(line.replace(r#""start_us":0"#, &format!(r#""start_us":{}"#, quarter * 250_000)));
    }
    lines.push(attempt(3, "host@node1", SILENT));
    lines.push(r#"{"time_us":1,"event":"att"#.to_owned());
    let found = timeline(&events, Some(&lines)).unwrap();
    assert_eq!((found.seconds, found.more_lanes), (160.0, 0));
    assert_eq!(found.marks.len(), 2);
    assert_eq!((found.marks[1].at, found.marks[1].kind), (1.0, MarkKind::Fault));
    let clients: Vec<_> = found.lanes.iter().map(|lane| lane.client.as_str()).collect();
    assert_eq!(clients, ["host@node1", "pod@node1"]);
    let spans = &found.lanes[1].spans;
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_eq!((spans[0].from, spans[0].to, spans[1].to), (0.0, 80.0, 160.0));
    assert_eq!(
        spans[0].outcomes,
        BTreeMap::from([("ECONNREFUSED from the handshake".to_owned(), 320)])
    );
}

#[test]
fn lanes_are_bounded_and_those_that_cover_most_stay() {
    let mut lines: Vec<String> = (0..100).map(|n| attempt(n, &format!("c{n}"), SILENT)).collect();
    lines.extend((0..100).map(|n| attempt(n, "background", REFUSED)));
    let found = timeline(&[], Some(&lines)).unwrap();
    assert_eq!((found.lanes.len(), found.more_lanes), (LANES, 101 - LANES));
    assert!(found.lanes.iter().any(|lane| lane.client == "background"));
}

#[test]
fn where_attempts_were_only_counted_each_phase_is_a_span_and_lanes_are_few() {
    let mut events = vec![
        phase(0, "control"),
        counted("pod@node1", [1, 10], r#"{"answered by b1":7,"answered by b2":3}"#),
        phase(10, "verdict"),
        counted("pod@node1", [9, 20], r#"{"answered by b2":9}"#),
    ];
    let found = timeline(&events, None).unwrap();
    assert_eq!((found.seconds, found.marks.len(), found.more_lanes), (20.0, 2, 0));
    let outcomes = |all: &[(&str, u32)]| all.iter().map(|(words, n)| ((*words).to_owned(), *n)).collect();
    let span = |from, to, all| Span {
        from,
        to,
        outcomes: outcomes(all),
        wrong: 0,
    };
    let expected = [
        span(1.0, 10.0, &[("answered by b1", 7), ("answered by b2", 3)]),
        span(10.0, 20.0, &[("answered by b2", 9)]),
    ];
    assert_eq!(found.lanes[0].spans, expected);
    assert_eq!(
        (found.lanes[0].client.as_str(), found.lanes[0].transport.as_str()),
        ("pod@node1", "TCP")
    );

    events.extend((0..20).map(|n| counted(&format!("c{n}"), [1, 2], r#"{"answered by b1":1}"#)));
    let found = timeline(&events, None).unwrap();
    assert_eq!(
        (found.lanes.len(), found.more_lanes),
        (LANES_COUNTED, 21 - LANES_COUNTED)
    );
    assert!(
        found.lanes.iter().any(|lane| lane.client == "pod@node1"),
        "it covers most"
    );
}

/// The verdict of an axis about one lane: attempts from a second on were refused.
fn refused(axis: &str, client: &str, target: &str, from: u64) -> AxisReport {
    let first = attempt(from, client, REFUSED).replace("[a] t", target);
    let violation = Finding {
        weight: Weight::Violation,
        subject: format!("{target} TCP from {client}"),
        expected: "every probe served by exactly {b}".to_owned(),
        found: "new connections refused, 10 of 20 outside: 10 ECONNREFUSED from the handshake".to_owned(),
        first: vec![serde_json::from_str(&first).unwrap()],
        counted: None,
    };
    AxisReport::new(
        axis,
        harness::verdict::Verdict::Fail { why: "w".into() },
        vec![violation],
    )
}

#[test]
fn attempts_that_a_verdict_found_wrong_are_marked_and_their_lanes_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let events = [phase(0, "control"), phase(10, "verdict"), phase(30, "heal")];
    write(&folder.path().join(HISTORY), &events);
    let of = |client: &str, target: &str, outcome: &str, seconds: std::ops::Range<u64>| {
        let one = |second| attempt(second, client, outcome).replace("[a] t", target);
        seconds.map(one).collect::<Vec<_>>()
    };
    let lines = [
        // Covers most of the time, and belongs to no axis.
        of("host", "background", SILENT, 0..40),
        // Refused before the verdict and after it, too: that is not what the verdict is about.
        of("pod", "[b] t", REFUSED, 5..40),
        of("pod", "[b] t", SILENT, 12..13),
        of("host", "[b] t", SILENT, 10..12),
    ];
    write(&folder.path().join(ATTEMPTS), &lines.concat());
    let axes = [
        AxisReport::new("a", harness::verdict::Verdict::Pass, Vec::new()),
        refused("b", "pod", "[b] t", 20),
    ];
    let found = read(folder.path(), &axes).unwrap().unwrap();
    let lanes: Vec<_> = found
        .lanes
        .iter()
        .map(|lane| (lane.client.as_str(), lane.target.as_str()))
        .collect();
    assert_eq!(
        lanes,
        [("pod", "[b] t"), ("host", "[b] t"), ("host", "background")]
    );
    let failure = found.lanes[0].failure.as_ref().unwrap();
    assert_eq!((failure.from, failure.to), (10.0, 29.0));
    let wrong: Vec<f64> = found.lanes[0]
        .spans
        .iter()
        .filter(|span| span.wrong > 0)
        .map(|span| span.from)
        .collect();
    let all: u32 = found.lanes[0].spans.iter().map(|span| span.wrong).sum();
    assert_eq!((all, wrong.len()), (10, 10), "seconds 20 to 29");
    assert!(wrong[0] > 19.0 && wrong[9] < 30.0, "{wrong:?}");
    let right = [1, 2].map(|lane| found.lanes[lane].spans.iter().map(|span| span.wrong).sum::<u32>());
    assert_eq!(right, [0, 0]);
    assert_eq!(
        (found.lanes[0].axis(), found.lanes[0].destination()),
        (Some("b"), "t")
    );
    assert_eq!(
        (found.lanes[2].axis(), found.lanes[2].destination()),
        (None, "background")
    );
}

#[test]
fn an_outcome_is_wrong_only_if_the_finding_counts_it() {
    let finding = |found: &str| Finding {
        weight: Weight::Violation,
        subject: String::new(),
        expected: String::new(),
        found: found.to_owned(),
        first: Vec::new(),
        counted: None,
    };
    let found =
        finding("wrong answers (3), 5 of 9 outside: 3 answered by b10.ns/TCP/80, 2 EPERM from connect; late");
    for (outcome, expected) in [
        ("answered by b10.ns/TCP/80", true),
        ("EPERM from connect", true),
        ("answered by b10.ns/TCP/8", false),
        ("answered by b1", false),
        ("10.ns/TCP/80", false),
    ] {
        assert_eq!(counts(&found, outcome), expected, "{outcome}");
    }
    assert!(!counts(
        &finding("0 of 9 answered by b1.ns/TCP/80"),
        "answered by b1.ns/TCP/80"
    ));
}

#[test]
fn a_history_without_attempts_has_no_timeline() {
    assert_eq!(timeline(&[phase(0, "x")], None), None);
    assert_eq!(timeline(&[phase(0, "x")], Some(&[])), None);
}
