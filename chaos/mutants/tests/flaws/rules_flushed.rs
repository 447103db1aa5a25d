//! The mutant flushes the rules of its node whenever it attaches its programs, and only then.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Instant,
};

use mutants::rules_flushed::rules_flushed;
use reference_agent::{
    hooks::{Hooks, SCAN},
    metrics::Metrics,
    testing::node::Node,
};

#[test]
fn rules_are_flushed_when_programs_are_attached() {
    let node = Node::new();
    let flushed = AtomicU32::new(0);
    let datapath = rules_flushed(node.open(), || {
        flushed.fetch_add(1, Relaxed);
    });
    assert_eq!(flushed.load(Relaxed), 0);
    let now = Instant::now();
    let mut hooks = Hooks::new(datapath, Metrics::new(), now);
    hooks.scan(true, now);
    assert_eq!((hooks.reasons(), flushed.load(Relaxed)), (Vec::new(), 1));
    hooks.scan(true, now + SCAN);
    assert_eq!(flushed.load(Relaxed), 1, "nothing is attached again");
}
