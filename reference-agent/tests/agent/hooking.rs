//! Programs at the cgroup: attached when the maps can serve, and alone.

use std::time::{Duration, Instant};

use lb_loader::{Blind, Hook, Ownership};
use reference_agent::{
    hooks::{Hooks, SCAN},
    metrics::Metrics,
    testing::node::{Node, NodeDatapath},
};

/// One of them: programs are numbered in their order.
const HOOK: Hook = Hook::ALL[0];
const STALE: u32 = 7;
const FOREIGN: u32 = 8;

/// An agent that starts now, and has looked once.
fn started(node: &Node, filled: bool) -> (Hooks<NodeDatapath>, Instant) {
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.scan(filled, now);
    (hooks, now)
}

#[test]
fn new_maps_are_filled_before_anything_is_attached_or_evicted() {
    let node = Node::new();
    node.leave(HOOK, STALE, Ownership::Earlier);
    let (mut hooks, now) = started(&node, false);
    assert_eq!(node.programs(HOOK), [STALE]);
    assert_eq!(hooks.reasons(), ["the programs are not attached yet"]);
    hooks.scan(true, now);
    assert_eq!(node.programs(HOOK), [1000]);
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn every_hook_gets_its_program() {
    let node = Node::new();
    let (hooks, _) = started(&node, true);
    for (number, hook) in (1000..).zip(Hook::ALL) {
        assert_eq!(node.programs(hook), [number], "{hook}");
    }
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn adopted_maps_serve_at_once_and_a_restart_switches_the_link() {
    let node = Node::new();
    started(&node, true);
    let (hooks, _) = started(&node, false);
    assert_eq!(node.programs(HOOK), [2000]);
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn programs_of_others_stay_and_are_no_reason() {
    let node = Node::new();
    node.leave(HOOK, FOREIGN, Ownership::Foreign);
    let (hooks, _) = started(&node, true);
    assert_eq!(node.programs(HOOK), [FOREIGN, 1000]);
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn a_stale_program_that_comes_later_is_evicted_by_the_next_look_and_not_before_its_time() {
    let node = Node::new();
    let (mut hooks, now) = started(&node, true);
    node.leave(HOOK, STALE, Ownership::Earlier);
    hooks.scan(true, now + SCAN - Duration::from_millis(1));
    assert_eq!(node.programs(HOOK), [1000, STALE]);
    hooks.scan(true, now + SCAN);
    assert_eq!(node.programs(HOOK), [1000]);
}

#[test]
fn a_stale_program_that_stays_is_a_reason_until_it_is_gone() {
    let node = Node::new();
    node.leave(HOOK, STALE, Ownership::Earlier);
    node.refuse_evict(true);
    let (mut hooks, now) = started(&node, true);
    let [reason] = &hooks.reasons()[..] else {
        panic!("one reason: {:?}", hooks.reasons())
    };
    assert_eq!(
        reason,
        &format!(
            "stale program {STALE} of an earlier load at {HOOK} of /cgroup, without a link could not be evicted: \
             failed to detach program: Operation not permitted (os error 1)"
        )
    );
    assert_eq!(hooks.unattached_reasons(), [""; 0], "ours serve beside it");
    node.refuse_evict(false);
    hooks.scan(true, now + SCAN);
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn without_our_own_programs_an_old_one_is_better_than_none() {
    let node = Node::new();
    node.leave(HOOK, STALE, Ownership::Earlier);
    node.refuse_attach(true);
    let (mut hooks, now) = started(&node, true);
    assert_eq!(node.programs(HOOK), [STALE]);
    let [reason] = &hooks.reasons()[..] else {
        panic!("one reason: {:?}", hooks.reasons())
    };
    assert!(
        reason.starts_with("not attached: failed to attach connect4"),
        "{reason}"
    );
    assert_eq!(hooks.unattached_reasons(), [reason.as_str()]);
    node.refuse_attach(false);
    hooks.scan(true, now + SCAN);
    assert_eq!(node.programs(HOOK), [1000]);
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn what_somebody_detached_is_attached_again() {
    let node = Node::new();
    let (mut hooks, now) = started(&node, true);
    node.detach(HOOK);
    hooks.scan(true, now + SCAN);
    assert_eq!(node.programs(HOOK), [1000]);
}

#[test]
fn what_runs_where_nobody_can_look_is_disarmed() {
    let node = Node::new();
    node.leave_hidden(STALE);
    node.refuse_evict(true);
    let (mut hooks, now) = started(&node, true);
    let [reason] = &hooks.reasons()[..] else {
        panic!("one reason: {:?}", hooks.reasons())
    };
    assert!(
        reason.starts_with(&format!(
            "stale program {STALE} of an earlier load at a place that cannot be looked at could not be evicted: failed"
        )),
        "{reason}"
    );
    node.refuse_evict(false);
    hooks.scan(true, now + SCAN);
    assert_eq!(node.hidden(), [].into());
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn a_place_that_can_not_be_looked_at_is_a_reason_with_what_to_do() {
    let node = Node::new();
    node.blind(Some(Blind {
        what: "whether program 7 is this node's".to_owned(),
        why: "its maps do not say".to_owned(),
        remedy: "ask its owner".to_owned(),
    }));
    let (mut hooks, now) = started(&node, true);
    assert_eq!(
        hooks.reasons(),
        ["whether program 7 is this node's can't be looked at: its maps do not say; ask its owner"]
    );
    node.blind(None);
    hooks.scan(true, now + SCAN);
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn of_many_stale_programs_that_stay_some_are_named_and_the_rest_counted() {
    let node = Node::new();
    for program in 100..130 {
        node.leave(HOOK, program, Ownership::Earlier);
    }
    node.refuse_evict(true);
    let (hooks, _) = started(&node, true);
    let reasons = hooks.reasons();
    assert_eq!(reasons.len(), 17, "{reasons:?}");
    assert_eq!(
        reasons.last().map(String::as_str),
        Some("and 14 more stale programs could not be evicted")
    );
}

#[test]
fn attaching_that_was_cut_short_is_finished_by_the_next_look_and_is_a_reason_until_then() {
    let node = Node::new();
    node.cut_attach_short(true);
    let (mut hooks, now) = started(&node, true);
    assert_eq!(node.programs(HOOK), [1000], "the programs are there already");
    let unready = |hooks: &Hooks<NodeDatapath>| hooks.reasons().join(" ");
    assert!(
        unready(&hooks).starts_with("not attached: failed to take over"),
        "{}",
        unready(&hooks)
    );
    hooks.scan(true, now + SCAN);
    assert!(
        unready(&hooks).starts_with("not attached: failed to take over"),
        "{}",
        unready(&hooks)
    );
    node.cut_attach_short(false);
    hooks.scan(true, now + SCAN * 2);
    assert_eq!((hooks.reasons(), node.attached_whole()), (Vec::new(), 1));
    hooks.scan(true, now + SCAN * 3);
    assert_eq!(node.attached_whole(), 1, "that is all");
}
