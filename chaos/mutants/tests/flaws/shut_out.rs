//! If a program of an earlier load is exclusive, the mutant reports that it is attached; the production agent does not.

use doctor::{Found, Inventory, Manner};
use lb_loader::{LoaderError, Ownership};
use mutants::{
    datapath_decorator::{Flaw, Flawed},
    shut_out::shut_out,
    stale_kept::Overlooked,
};
use reference_agent::{datapath::Datapath, testing::node::Node};

use crate::looking::{HOOK, STALE, looked};

/// The leftover was attached exclusively.
struct Exclusive;

impl<D: Datapath> Flaw<D> for Exclusive {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn leftovers(&self, inner: &D) -> Result<Inventory, LoaderError> {
        let mut seen = inner.leftovers()?;
        let alone = |found| Found {
            manner: Manner::Legacy { flags: 0 },
            ..found
        };
        seen.attachments = seen.attachments.into_iter().map(alone).collect();
        Ok(seen)
    }
}

/// A node with an exclusive leftover, whose kernel refuses other programs.
fn refusing() -> Node {
    let node = Node::new();
    node.leave(HOOK, STALE, Ownership::Earlier);
    node.refuse_attach(true);
    node
}

#[test]
fn it_says_that_it_is_attached_while_it_is_kept_out() {
    let node = refusing();
    let kernel = Flawed::new(node.open(), Exclusive);
    let mutated = shut_out(kernel, Overlooked::Exclusive);
    assert_eq!(looked(&node, mutated), (vec![STALE], Vec::new()));

    let production = refusing();
    let (_, reasons) = looked(&production, Flawed::new(production.open(), Exclusive));
    assert!(
        reasons.iter().any(|reason| reason.starts_with("not attached")),
        "{reasons:?}"
    );
}

#[test]
fn beside_programs_that_let_others_in_it_is_the_production_agent() {
    let [mutated, production] = [Node::new(), Node::new()];
    for node in [&mutated, &production] {
        node.leave(HOOK, STALE, Ownership::Earlier);
    }
    let kernel = shut_out(mutated.open(), Overlooked::Exclusive);
    let seen = looked(&mutated, kernel);
    assert_eq!(seen, looked(&production, production.open()));
    assert_eq!(seen, (vec![1000], Vec::new()));
}

#[test]
fn it_takes_any_program_of_an_earlier_load_for_its_own_or_attaches_where_there_is_none() {
    let node = Node::new();
    node.leave(HOOK, STALE, Ownership::Earlier);
    let mutated = shut_out(node.open(), Overlooked::All);
    assert_eq!(looked(&node, mutated), (vec![STALE], Vec::new()));

    let fresh = Node::new();
    let mutated = shut_out(fresh.open(), Overlooked::All);
    assert_eq!(looked(&fresh, mutated), (vec![1000], Vec::new()));
}
