//! The mutant evicts an earlier load's leftovers, like the agent, and then ends, once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use lb_loader::{Hook, Ownership};
use mutants::starts_twice::starts_twice;
use reference_agent::{
    hooks::{Hooks, SCAN},
    metrics::Metrics,
    testing::node::Node,
};

const HOOK: Hook = Hook::ALL[0];

#[test]
fn it_ends_after_it_has_evicted_something_and_otherwise_never() {
    for (left, ends) in [(false, 0), (true, 1)] {
        let node = Node::new();
        if left {
            node.leave(HOOK, 7, Ownership::Earlier);
        }
        let ended = Arc::new(AtomicUsize::new(0));
        let end = {
            let ended = Arc::clone(&ended);
            move || {
                ended.fetch_add(1, Ordering::Relaxed);
            }
        };
        let now = Instant::now();
        let mut hooks = Hooks::new(starts_twice(node.open(), end), Metrics::new(), now);
        hooks.scan(true, now);
        hooks.scan(true, now + SCAN);
        hooks.scan(true, now + 2 * SCAN);
        assert_eq!(ended.load(Ordering::Relaxed), ends, "left: {left}");
        assert_eq!(node.programs(HOOK).len(), 1, "its own alone");
    }
}
