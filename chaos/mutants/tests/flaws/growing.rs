//! The mutant attaches its programs once more at each start, and reports success.

use std::time::Instant;

use lb_loader::{Hook, Ownership};
use mutants::growing::growing;
use reference_agent::{
    hooks::{Hooks, SCAN},
    metrics::Metrics,
    testing::node::Node,
};

const HOOK: Hook = Hook::ALL[0];

#[test]
fn each_start_attaches_once_more_and_nothing_goes() {
    let node = Node::new();
    for start in 1..=3 {
        let left = node.clone();
        let id = u32::try_from(start).expect("a few");
        let datapath = growing(node.open(), move || {
            left.leave(HOOK, id, Ownership::Earlier);
            Ok(())
        });
        let now = Instant::now();
        let mut hooks = Hooks::new(datapath, Metrics::new(), now);
        hooks.scan(true, now);
        hooks.scan(true, now + SCAN);
        assert_eq!(hooks.reasons(), Vec::<String>::new(), "start {start}");
        assert_eq!(node.programs(HOOK).len(), 1 + start);
    }
}
