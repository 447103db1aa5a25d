//! A start forgets services, or flows, once; then it is the production agent.

use std::cell::Cell;

use mutants::forgetful_start::{empty_flows, flows_forgotten, services_forgotten};
use reference_agent::{
    control::{Control, Planner},
    datapath::Datapath as _,
    model::Event,
    testing::{
        node::Node,
        objects::{service, slice},
        synced,
    },
};

#[test]
fn services_are_forgotten_at_the_start_and_written_again_from_the_lists() {
    let node = Node::new();
    let start = |forgets: bool| {
        let maps = if forgets {
            services_forgotten(node.open()).maps()
        } else {
            node.open().maps()
        };
        let before = node.contents().services.len();
        let mut control = Control::new(Planner::default(), maps).expect("maps in memory can be read");
        let events = [
            Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])),
            Event::SliceApplied(slice("t/x", "x", &["TCP 8080"], &["10.0.0.1"])),
        ];
        for event in events.into_iter().chain(synced()) {
            control.apply(event);
        }
        control.reconcile(std::time::Instant::now());
        (before, node.contents().services.len())
    };
    let first = start(false).1;
    assert!(first > 0);
    assert_eq!(start(false), (first, first));
    assert_eq!(start(true), (0, first));
}

#[test]
fn flows_are_forgotten_at_the_first_attachment_alone() {
    let node = Node::new();
    let forgotten = std::sync::atomic::AtomicU32::new(0);
    let count = || forgotten.load(std::sync::atomic::Ordering::Relaxed);
    let mut datapath = flows_forgotten(node.open(), || {
        forgotten.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let seen = Cell::new(count());
    for _ in 0..2 {
        datapath.attach().unwrap();
        seen.set(seen.get() + count());
    }
    assert_eq!(seen.get(), 2, "once, and seen after both");
    let bpffs = tempfile::tempdir().unwrap();
    assert!(empty_flows(bpffs.path()).is_err(), "no map is pinned there");
}
