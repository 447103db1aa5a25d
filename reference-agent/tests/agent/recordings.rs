//! What real control planes (Kubernetes 1.36.3) sent to their watchers, replayed: whole, with the watch cut at every
//! event, with kinds overtaking each other, and with the agent restarted at every event.
//!
//! `tests/recordings/NAME.jsonl` has one event a line, as `kubectl get --watch --output-watch-events` prints them, of
//! Services, EndpointSlices and Nodes, without what the agent never reads (managed fields, references, most of a
//! Node). `NAME.txt` says what was recorded, and what the maps of the node `rec-worker2` hold in the end;
//! `GOLDEN_UPDATE=1` writes the latter.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use reference_agent::{
    decode,
    dump::dump,
    model::{Host, Node, Service, Slice},
    names::ObjectName,
    plan::Perspective,
    relist::Object,
};
use rstest::rstest;
use serde_json::Value;

use crate::law::history::{History, Watch};

/// One event.
#[derive(Clone, Debug)]
enum Recorded {
    Service(Change<Service>),
    Slice(Change<Slice>),
    Node(Change<Node>),
}

#[derive(Clone, Debug)]
enum Change<T> {
    Put(T),
    Delete(ObjectName),
}

impl Recorded {
    fn watch(&self) -> Watch {
        match self {
            Self::Service(_) => Watch::Services,
            Self::Slice(_) => Watch::Slices,
            Self::Node(_) => Watch::Nodes,
        }
    }

    /// In the store, and on its way to the agent.
    fn happen(&self, history: &mut History) {
        match self.clone() {
            Self::Service(Change::Put(service)) => history.services.put(service),
            Self::Service(Change::Delete(name)) => history.services.delete(&name),
            Self::Slice(Change::Put(slice)) => history.slices.put(slice),
            Self::Slice(Change::Delete(name)) => history.slices.delete(&name),
            Self::Node(Change::Put(node)) => history.nodes.put(node),
            Self::Node(Change::Delete(name)) => history.nodes.delete(&name),
        }
    }
}

/// Decodes an event; a real control plane sends nothing that can't be read.
fn change<T: Object>(
    event: &Value,
    read: fn(&Value) -> Result<decode::Decoded<T>, decode::Defect>,
) -> Change<T> {
    let decoded = read(&event["object"]).unwrap_or_else(|defect| panic!("{defect}: {event}"));
    assert!(decoded.defects.is_empty(), "{:?}: {event}", decoded.defects);
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Change::Put(decoded.object),
        Some("DELETED") => Change::Delete(decoded.object.name()),
        other => panic!("ADDED, MODIFIED or DELETED, found {other:?}"),
    }
}

fn read(path: &Path) -> Vec<Recorded> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        match event["object"]["kind"].as_str() {
            Some("Service") => Recorded::Service(change(&event, decode::service)),
            Some("EndpointSlice") => Recorded::Slice(change(&event, decode::slice)),
            Some("Node") => Recorded::Node(change(&event, decode::node)),
            other => panic!("Service, EndpointSlice or Node, found {other:?}"),
        }
    };
    text.lines().map(event).collect()
}

/// An agent on the node on which most of the recorded pods are, which reaches its API server by its ClusterIP.
fn history() -> History {
    let api_server = "10.96.0.1".parse().expect("an address");
    let perspective = Perspective {
        node: "rec-worker2".to_owned(),
        ..Perspective::default()
    };
    let host = Host {
        addresses: ["172.19.0.2".parse().expect("an address")].into(),
        probe: None,
    };
    let mut history = History::seen_as(perspective, host, [(api_server, 443)].into());
    history.end();
    history
}

/// Every event, delivered at once.
fn replayed(events: &[Recorded]) -> History {
    let mut history = history();
    for event in events {
        event.happen(&mut history);
        history.deliver(event.watch());
    }
    history
}

/// Events in another order, in which those of each kind have theirs; `next` says of which of three watches the next
/// one is.
fn reordered(events: &[Recorded], mut next: impl FnMut() -> usize) -> Vec<Recorded> {
    let of = |watch| events.iter().filter(move |event| event.watch() == watch).cloned();
    let mut kinds = [Watch::Services, Watch::Slices, Watch::Nodes].map(|watch| of(watch).peekable());
    let mut all = Vec::new();
    while all.len() < events.len() {
        all.extend(kinds[next() % 3].next());
    }
    all
}

#[rstest]
fn whole(#[files("tests/recordings/*.jsonl")] path: PathBuf) {
    let expected = path.with_extension("txt");
    let text = fs::read_to_string(&expected).unwrap_or_default();
    let (comment, golden): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('#'));
    let found = dump(&replayed(&read(&path)).contents());
    if env::var_os("GOLDEN_UPDATE").is_some_and(|value| value == "1") {
        fs::write(&expected, format!("{}\n{found}", comment.join("\n"))).expect("it can be written");
    }
    assert!(
        !comment.is_empty(),
        "{} says in a comment what was recorded",
        expected.display()
    );
    assert_eq!(golden.join("\n") + "\n", found, "{}", expected.display());
}

#[rstest]
fn cut_at_every_event(#[files("tests/recordings/*.jsonl")] path: PathBuf) {
    let events = read(&path);
    let whole = replayed(&events);
    for cut in 0..events.len() {
        let mut history = replayed(&events[..cut]);
        for event in &events[cut..] {
            event.happen(&mut history);
        }
        history.break_watches();
        history.end();
        assert_eq!(
            dump(&history.contents()),
            dump(&whole.contents()),
            "cut before event {cut}"
        );
    }
}

#[rstest]
fn in_another_order_across_kinds(#[files("tests/recordings/*.jsonl")] path: PathBuf) {
    let events = read(&path);
    let whole = replayed(&events);
    let check = |order: &[Recorded], what: &str| {
        let mut history = replayed(order);
        history.end();
        assert_eq!(dump(&history.contents()), dump(&whole.contents()), "{what}");
    };
    for order in [[0, 1, 2], [2, 1, 0]] {
        let taken = |kind: usize| {
            let watch = [Watch::Services, Watch::Slices, Watch::Nodes][kind];
            events.iter().filter(move |event| event.watch() == watch).cloned()
        };
        let all: Vec<_> = order.into_iter().flat_map(taken).collect();
        check(&all, &format!("one kind after the other: {order:?}"));
    }
    for seed in 0..8 {
        let mut random = StdRng::seed_from_u64(seed);
        check(
            &reordered(&events, || random.random_range(0..3)),
            &format!("seed {seed}"),
        );
    }
}

#[rstest]
fn restarted_at_every_event(#[files("tests/recordings/*.jsonl")] path: PathBuf) {
    let events = read(&path);
    let whole = replayed(&events);
    let mut history = history();
    for event in &events {
        event.happen(&mut history);
        history.restart();
        history.end();
    }
    assert_eq!(dump(&history.contents()), dump(&whole.contents()));
}
