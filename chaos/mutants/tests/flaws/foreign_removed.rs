//! The mutant detaches programs of other owners; the production agent leaves them.

use std::time::Instant;

use doctor::Found;
use lb_loader::{Hook, Ownership};
use mutants::foreign_removed::greedy;
use reference_agent::{
    datapath::Datapath,
    hooks::{Hooks, SCAN},
    metrics::Metrics,
    testing::node::{Node, as_found},
};

const HOOK: Hook = Hook::ALL[0];
const FOREIGN: u32 = 7;

/// Programs at the hook after two rounds.
fn started<D: Datapath>(node: &Node, datapath: D) -> Vec<u32> {
    let now = Instant::now();
    let mut hooks = Hooks::new(datapath, Metrics::new(), now);
    hooks.scan(true, now);
    hooks.scan(true, now + SCAN);
    node.programs(HOOK)
}

#[test]
fn a_program_of_somebody_else_goes() {
    let node = Node::new();
    node.leave(HOOK, FOREIGN, Ownership::Foreign);
    let datapath = node.open();
    let others: Vec<Found> = datapath.foreign().unwrap().iter().map(as_found).collect();
    assert_eq!(others.len(), 1);
    assert_eq!(started(&node, greedy(datapath, move || others.clone())), [1000]);
    let production = Node::new();
    production.leave(HOOK, FOREIGN, Ownership::Foreign);
    assert_eq!(started(&production, production.open()), [FOREIGN, 1000]);
}

#[test]
fn where_nobody_else_is_it_is_the_production_agent() {
    let [mutated, production] = [Node::new(), Node::new()];
    for round in 1..=3 {
        let seen = started(&mutated, greedy(mutated.open(), Vec::new));
        assert_eq!(seen, started(&production, production.open()), "start {round}");
    }
}
