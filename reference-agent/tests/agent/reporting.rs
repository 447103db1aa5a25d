//! What the agent reports of itself: metrics as METRICS.md has them, and findings that last.

use std::fmt::Write as _;

use reference_agent::{
    findings::{Finding, Reason},
    ledger::{Ledger, Origin, SENTENCES, Subject},
    metrics::Metrics,
    model::Kind,
    testing::objects::name,
};
use tokio::sync::mpsc;

#[test]
fn every_metric_is_in_metrics_md_and_nothing_else_is() {
    let document = include_str!("../../METRICS.md");
    let mut expected = String::from("| name | type | labels | what |\n|---|---|---|---|\n");
    for metric in Metrics::new().descriptions() {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (labels, kind, help) = (labels.join(", "), metric.kind, metric.help);
        let _ = writeln!(expected, "| `{}` | {kind} | {labels} | {help} |", metric.name);
    }
    let begin = document.find("| name |").expect("METRICS.md has a table");
    let table: String = document[begin..]
        .lines()
        .take_while(|line| line.starts_with('|'))
        .fold(String::new(), |table, line| table + line + "\n");
    assert_eq!(table, expected, "METRICS.md and src/metrics differ");
}

#[test]
fn metrics_are_scraped_under_their_documented_names() {
    let metrics = Metrics::new();
    metrics.ready.at([]).set(1);
    metrics.watch_restarts.at(["service", "broken"]).inc();
    metrics.programming.observe(0.001);
    let text = metrics.encode();
    for line in [
        "plumbline_ready{} 1",
        "plumbline_watch_restarts_total{kind=\"service\",cause=\"broken\"} 1",
        "plumbline_programming_seconds_count 1",
        "# TYPE plumbline_watch_restarts counter",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is missing in\n{text}"
        );
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
}

fn finding(reason: Reason, message: &str) -> Finding {
    Finding {
        reason,
        message: message.to_owned(),
    }
}

#[test]
fn findings_last_until_their_origin_says_otherwise() {
    let metrics = Metrics::new();
    let (sender, mut notices) = mpsc::channel(2);
    let ledger = Ledger::new(metrics.clone(), Some(sender));
    let subject = || Subject::Object(Kind::Service, name("t/a"));
    let (read, planned) = (
        finding(Reason::Malformed, "spec.ports: expected a list"),
        finding(Reason::FrontendTaken, "TCP 10.0.0.1:80 is t/b's"),
    );
    ledger.set(subject(), Origin::Read, vec![read.clone()]);
    ledger.set(subject(), Origin::Planned, vec![planned.clone()]);
    ledger.set(subject(), Origin::Planned, vec![planned.clone()]);
    assert_eq!(
        ledger.text(),
        "service t/a: Malformed: spec.ports: expected a list\nservice t/a: FrontendTaken: TCP 10.0.0.1:80 is t/b's\n"
    );
    let told: Vec<_> = std::iter::from_fn(|| notices.try_recv().ok())
        .map(|notice| notice.finding)
        .collect();
    assert_eq!(told, [read, planned], "each once");
    assert_eq!(metrics.findings.at(["FrontendTaken"]).get(), 1);
    ledger.set(subject(), Origin::Planned, Vec::new());
    assert_eq!(metrics.findings.at(["FrontendTaken"]).get(), 0);
    assert_eq!(metrics.findings.at(["Malformed"]).get(), 1);
    ledger.set(subject(), Origin::Read, Vec::new());
    assert_eq!(ledger.text(), "");
}

#[test]
fn a_hundred_thousand_findings_of_one_object_are_counted_and_some_of_them_kept() {
    let metrics = Metrics::new();
    let (sender, mut notices) = mpsc::channel(4);
    let ledger = Ledger::new(metrics.clone(), Some(sender));
    let many = (0..100_000).map(|number| finding(Reason::EndpointRefused, &format!("endpoints[{number}]")));
    ledger.set(
        Subject::Object(Kind::EndpointSlice, name("t/a")),
        Origin::Read,
        many.collect(),
    );
    assert_eq!(metrics.findings.at(["EndpointRefused"]).get(), 100_000);
    let text = ledger.text();
    assert_eq!(text.lines().count(), SENTENCES + 1);
    assert!(text.ends_with("endpointslice t/a: and 99984 more\n"), "{text}");
    // The queue is bounded; what does not fit is counted.
    assert_eq!(std::iter::from_fn(|| notices.try_recv().ok()).count(), 4);
    assert_eq!(metrics.events.at(["dropped"]).get(), SENTENCES as u64 - 4);
}
