//! The mutant leaves what an earlier load has attached, says that all is well, and attaches as ever.

use std::time::Instant;

use lb_loader::{Hook, Ownership};
use mutants::stale_kept::{Overlooked, StaleKept};
use reference_agent::{
    datapath::Datapath,
    hooks::{Hooks, SCAN},
    metrics::Metrics,
    testing::node::Node,
};

/// One of them: programs are numbered in their order.
const HOOK: Hook = Hook::ALL[0];
const STALE: u32 = 7;

/// Programs at the hook after two looks, and why the node isn't ready.
fn looked<D: Datapath>(node: &Node, datapath: D) -> (Vec<u32>, Vec<String>) {
    let now = Instant::now();
    let mut hooks = Hooks::new(datapath, Metrics::new(), now);
    hooks.look(true, now);
    hooks.look(true, now + SCAN);
    (node.programs(HOOK), hooks.reasons())
}

#[test]
fn a_stale_program_stays_and_readiness_says_nothing() {
    let node = Node::new();
    node.leave(HOOK, STALE, Ownership::Earlier);
    assert_eq!(
        looked(&node, StaleKept::new(node.open(), Overlooked::All)),
        (vec![STALE, 1000], Vec::new())
    );
    let production = Node::new();
    production.leave(HOOK, STALE, Ownership::Earlier);
    assert_eq!(looked(&production, production.open()), (vec![1000], Vec::new()));
}

#[test]
fn without_a_leftover_it_is_the_production_agent() {
    let [mutated, production] = [Node::new(), Node::new()];
    for round in 1..=3 {
        let seen = looked(&mutated, StaleKept::new(mutated.open(), Overlooked::All));
        assert_eq!(seen, looked(&production, production.open()), "start {round}");
        assert_eq!(seen, (vec![round * 1000], Vec::new()));
    }
}

#[test]
fn what_goes_wrong_otherwise_is_a_reason() {
    let node = Node::new();
    node.refuse_attach(true);
    let (programs, reasons) = looked(&node, StaleKept::new(node.open(), Overlooked::All));
    assert_eq!(programs, [0; 0]);
    assert!(reasons[0].starts_with("not attached"), "{reasons:?}");
}
