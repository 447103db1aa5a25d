//! Shared by tests of mutants that leave programs attached.

use std::time::Instant;

use lb_loader::Hook;
use reference_agent::{
    datapath::Datapath,
    hooks::{Hooks, SCAN},
    metrics::Metrics,
    testing::node::Node,
};

/// Any hook: ids of programs follow their order.
pub(crate) const HOOK: Hook = Hook::ALL[0];
/// A program of an earlier load.
pub(crate) const STALE: u32 = 7;

/// Programs at the hook after two rounds, and why the node isn't ready.
pub(crate) fn looked<D: Datapath>(node: &Node, datapath: D) -> (Vec<u32>, Vec<String>) {
    let now = Instant::now();
    let mut hooks = Hooks::new(datapath, Metrics::new(), now);
    hooks.scan(true, now);
    hooks.scan(true, now + SCAN);
    (node.programs(HOOK), hooks.reasons())
}
