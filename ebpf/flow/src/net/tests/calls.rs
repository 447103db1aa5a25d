//! What each path of a packet costs in look-ups and other helper calls, compared with the committed figures.
//!
//! `GOLDEN_UPDATE=1 cargo test -p lb-flow calls` writes the figures, to be read before they are committed.
//!
//! Counted are the calls of decisions, on a model of the node. Not counted is what every packet has that comes as far: look-ups in
//! the arrays META and CONFIG, of the scratch and of counters, the route, and what is written to the packet.

mod paths;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    format, fs,
    string::String,
};

use self::paths::{IPV4, IPV6, Path};
use super::*;
use crate::{
    model::{Calls, Counts},
    net::reject::ANSWER_WORDS,
};

/// The committed figures; and where they are.
const COMMITTED: &str = include_str!("../../../calls.tsv");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/calls.tsv");

const HEADER: &str = "\
# Look-ups and other helper calls by which the datapath decides on one packet, by path (ebpf/DATAPATH.md)
# Compared by the tests of lb-flow, whose net/tests/calls.rs says what counts; written by:
# GOLDEN_UPDATE=1 cargo test -p lb-flow calls
# hook\tpath\tfamily\tcounter\tlook-ups\tby map\tother calls
";

/// A packet of which each read is counted.
#[derive(Clone, Copy)]
struct Counted<'a>(Bytes<'a>, &'a Calls);

impl<'a> Counted<'a> {
    fn read(self) -> Bytes<'a> {
        self.1.other("packet read");
        self.0
    }
}

impl Packet for Counted<'_> {
    fn protocol(self) -> [u8; 2] {
        self.0.protocol()
    }
    fn length(self) -> u32 {
        self.0.length()
    }
    fn is_gso(self) -> bool {
        self.0.is_gso()
    }
    fn words<const WORDS: usize>(self, offset: u32) -> Option<[u32; WORDS]> {
        self.read().words(offset)
    }
    fn half(self, offset: u32) -> Option<[u8; 2]> {
        self.read().half(offset)
    }
    fn byte(self, offset: u32) -> Option<u8> {
        self.read().byte(offset)
    }
    fn copy<const AT: usize>(self, offset: u32, length: u32, into: &mut [u32; ANSWER_WORDS]) -> bool {
        self.read().copy::<AT>(offset, length, into)
    }
    fn options(self, at: u32, end: u32) -> Options {
        options(self, at, end)
    }
    fn has_jumbo(self, at: u32, end: u32) -> bool {
        has_jumbo(self, at, end)
    }
}

/// What a packet counts on, and what it costs.
#[derive(PartialEq, Eq)]
struct Cost {
    counter: &'static str,
    look_ups: Counts,
    others: Counts,
}

/// The cost of a path's last packet.
fn cost(path: &Path) -> Cost {
    let Path {
        hook,
        node,
        before,
        packet,
        ..
    } = path;
    let mut work = PacketState::NEW;
    for (hook, packet) in before {
        let outcome = handled(*hook, node, Bytes(packet), &mut work);
        assert_eq!(
            outcome.disposition(),
            Disposition::Translate,
            "before {:?} {}",
            path.hook,
            path.name
        );
    }
    let calls = &node.maps.calls;
    calls.take();
    let outcome = handled(*hook, node, Counted(Bytes(packet), calls), &mut work);
    let (look_ups, others) = calls.take();
    Cost {
        counter: outcome.counter().name(),
        look_ups,
        others,
    }
}

/// The figures of all paths: a line for both families where they cost the same.
fn figures() -> String {
    let mut text = String::from(HEADER);
    for (v4, v6) in IPV4.paths().iter().zip(&IPV6.paths()) {
        let costs = (cost(v4), cost(v6));
        if costs.0 == costs.1 {
            line(&mut text, v4, "both", &costs.0);
        } else {
            line(&mut text, v4, "IPv4", &costs.0);
            line(&mut text, v6, "IPv6", &costs.1);
        }
    }
    text
}

fn line(text: &mut String, path: &Path, family: &str, cost: &Cost) {
    let hook = match path.hook {
        Hook::NodeIngress => "node_ingress",
        Hook::NodeEgress => "node_egress",
        Hook::PodIngress => "pod_ingress",
        Hook::PodEgress => "pod_egress",
    };
    let sum: u32 = cost.look_ups.values().sum();
    let [by_map, others] = [&cost.look_ups, &cost.others].map(|counts| {
        let each: Vec<_> = counts
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        each.join(", ")
    });
    let _ = writeln!(
        text,
        "{hook}\t{}\t{family}\t{}\t{sum}\t{by_map}\t{others}",
        path.name, cost.counter
    );
}

/// By path, what it counts on and how often it calls what.
fn parse(text: &str) -> BTreeMap<String, BTreeMap<&str, &str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<_> = line.split('\t').collect();
            let [hook, path, family, counter, sum, by_map, others] = fields[..] else {
                panic!("expected seven fields between tabs, found {line:?}");
            };
            let calls = [by_map, others].into_iter().flat_map(|counts| counts.split(", "));
            let calls = calls.filter_map(|count| count.rsplit_once(' '));
            let figures = [("counter", counter), ("look-ups", sum)].into_iter().chain(calls);
            (format!("{hook}, {path} ({family})"), figures.collect())
        })
        .collect()
}

/// In what two tables differ, a line each.
fn differences(committed: &str, found: &str) -> Vec<String> {
    let (expected, now) = (parse(committed), parse(found));
    let mut differences = Vec::new();
    for path in expected.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
        match (expected.get(path), now.get(path)) {
            (Some(expected), Some(now)) => {
                for what in expected.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
                    let [expected, found] = [expected, now].map(|figures| figures.get(what).unwrap_or(&"0"));
                    if expected != found {
                        differences.push(format!("{path}: {what}: expected {expected}, found {found}"));
                    }
                }
            }
            (None, _) => differences.push(format!("{path}: not committed")),
            (_, None) => differences.push(format!("{path}: committed, and no path")),
        }
    }
    if differences.is_empty() && committed != found {
        differences.push("comments, or the order of lines".into());
    }
    differences
}

#[test]
fn every_path_calls_what_is_committed() {
    let found = figures();
    if env::var_os("GOLDEN_UPDATE").is_some_and(|value| value == "1") {
        fs::write(FILE, &found).expect("failed to write ebpf/flow/calls.tsv");
        return;
    }
    let differences = differences(COMMITTED, &found);
    assert!(
        differences.is_empty(),
        "ebpf/flow/calls.tsv and what is called differ:\n  {}\n\
         More calls make every packet of the path slower: find out if it needs them. If it does, or if it needs fewer now, \
         write the file anew: GOLDEN_UPDATE=1 cargo test -p lb-flow calls",
        differences.join("\n  ")
    );
}

#[test]
fn more_and_fewer_calls_are_shown_and_paths_that_only_one_table_has() {
    let table = |paths: &[(&str, u32)]| {
        let mut text = String::new();
        for (name, count) in paths {
            let _ = writeln!(
                text,
                "node_egress\t{name}\tboth\tpacket_passed\t{count}\tCONNTRACK {count}\t"
            );
        }
        text
    };
    let committed = table(&[("same", 1), ("more", 1), ("fewer", 2), ("gone", 1)]);
    let found = table(&[("same", 1), ("more", 2), ("fewer", 1), ("new", 1)]);
    assert_eq!(
        differences(&committed, &found),
        [
            "node_egress, fewer (both): CONNTRACK: expected 2, found 1",
            "node_egress, fewer (both): look-ups: expected 2, found 1",
            "node_egress, gone (both): committed, and no path",
            "node_egress, more (both): CONNTRACK: expected 1, found 2",
            "node_egress, more (both): look-ups: expected 1, found 2",
            "node_egress, new (both): not committed",
        ]
    );
}
