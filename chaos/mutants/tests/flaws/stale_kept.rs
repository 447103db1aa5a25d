//! The mutant leaves an earlier load's programs attached, reports success, and attaches its own.

use lb_loader::{Hook, Ownership};
use mutants::stale_kept::{Overlooked, overlooking};
use reference_agent::testing::node::Node;

use crate::looking::{HOOK, STALE, looked};

#[test]
fn a_stale_program_stays_and_readiness_says_nothing() {
    let node = Node::new();
    node.leave(HOOK, STALE, Ownership::Earlier);
    assert_eq!(
        looked(&node, overlooking(node.open(), Overlooked::All)),
        (vec![STALE, 1000], Vec::new())
    );
    let production = Node::new();
    production.leave(HOOK, STALE, Ownership::Earlier);
    assert_eq!(looked(&production, production.open()), (vec![1000], Vec::new()));
}

#[test]
fn at_the_hooks_that_show_addresses_and_keep_ports_it_leaves_them_and_nowhere_else() {
    use Hook::{Getpeername4, Getpeername6, PostBind4, PostBind6, Recvmsg4, Recvmsg6};
    let kept = [
        Recvmsg4,
        Recvmsg6,
        Getpeername4,
        Getpeername6,
        PostBind4,
        PostBind6,
    ];
    for hook in Hook::ALL {
        let node = Node::new();
        node.leave(hook, STALE, Ownership::Earlier);
        let (_, reasons) = looked(&node, overlooking(node.open(), Overlooked::Reverse));
        assert_eq!(
            node.programs(hook).contains(&STALE),
            kept.contains(&hook),
            "{hook}"
        );
        assert_eq!(reasons, [""; 0], "{hook}");
    }
}

#[test]
fn without_a_leftover_it_is_the_production_agent() {
    let [mutated, production] = [Node::new(), Node::new()];
    for round in 1..=3 {
        let seen = looked(&mutated, overlooking(mutated.open(), Overlooked::All));
        assert_eq!(seen, looked(&production, production.open()), "start {round}");
        assert_eq!(seen, (vec![round * 1000], Vec::new()));
    }
}

#[test]
fn what_goes_wrong_otherwise_is_a_reason() {
    let node = Node::new();
    node.refuse_attach(true);
    let (programs, reasons) = looked(&node, overlooking(node.open(), Overlooked::All));
    assert_eq!(programs, [0; 0]);
    assert!(reasons[0].starts_with("not attached"), "{reasons:?}");
}
