//! One seed gives one valid scenario, with the intended kinds of steps.

use super::*;
use crate::state::sensible;

#[test]
fn one_seed_is_one_scenario() {
    for seed in 0..50 {
        assert_eq!(scenario(seed, 40), scenario(seed, 40));
        assert_ne!(scenario(seed, 40).steps, scenario(seed + 1, 40).steps);
        let short = scenario(seed, 10).steps;
        assert_eq!(
            short[..],
            scenario(seed, 40).steps[..10],
            "a longer one begins as a shorter one does"
        );
    }
}

#[test]
fn every_step_makes_sense_and_is_the_same_from_a_file() {
    for seed in 0..200 {
        let scenario = scenario(seed, 60);
        assert_eq!(scenario.steps.len(), 60, "seed {seed}");
        assert_eq!(sensible(&scenario.steps), scenario.steps, "seed {seed}");
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
    }
}

#[test]
fn what_it_is_for_is_generated() {
    let mut found = BTreeMap::new();
    let mut note = |what: &str, is_so: bool| *found.entry(what.to_owned()).or_insert(0) += u32::from(is_so);
    for seed in 0..100 {
        let mut state = State::default();
        for step in scenario(seed, 40).steps {
            let next = state.after(&step).unwrap();
            match &step {
                Step::Write(changes) => {
                    let owner = |state: &State, port| state.node_port(port);
                    let moves = NODE_PORTS.iter().any(|port| {
                        let (before, after) = (owner(&state, *port), owner(&next, *port));
                        before.is_some() && after.is_some() && before != after
                    });
                    note("a node port passes to another Service", moves);
                    let taken = |open: &&Open| {
                        let owner = |state: &State| open.source_port.and_then(|port| state.node_port(port));
                        open.from.is_host() && owner(&state).is_none() && owner(&next).is_some()
                    };
                    note(
                        "a host's socket, and then a node port of its number",
                        state.sockets.values().filter(taken).count() > 0,
                    );
                    let covered = |(_, port): &&(u8, u16)| {
                        state.node_port(*port).is_none() && next.node_port(*port).is_some()
                    };
                    note(
                        "a host's server, and then a node port of its number",
                        state.servers.iter().filter(covered).count() > 0,
                    );
                    let machine = |change: &Change| {
                        let addresses = change
                            .to
                            .iter()
                            .flat_map(|to| to.load_balancer.iter().chain(&to.external_ips));
                        addresses.into_iter().any(|address| *address == Address::Outside)
                    };
                    note("a Service with the client's address", changes.iter().any(machine));
                }
                Step::Dial(dial) => note("fragments out of order", !dial.fragments.is_sorted()),
                Step::Send(send) => {
                    let before = &state.sockets[&send.socket];
                    note("a socket that changes its destination", before.to != send.to);
                }
                _ => {}
            }
            state = next;
        }
    }
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(found.values().all(|count| *count >= 10), "{found:?}");
}

const ALL: Churn = Churn {
    faults: true,
    moves: true,
};

#[test]
fn with_chaos_every_step_makes_sense_and_is_the_same_from_a_file() {
    for churn in [Churn::default(), ALL] {
        for seed in 0..30 {
            let scenario = with_chaos(seed, 60, churn);
            assert_eq!(scenario, with_chaos(seed, 60, churn));
            assert_eq!(scenario.steps.len(), 60, "seed {seed}");
            assert_eq!(sensible(&scenario.steps), scenario.steps, "seed {seed}");
            let text = serde_json::to_string(&scenario).unwrap();
            assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
        }
    }
}

#[test]
fn what_chaos_is_for_is_generated() {
    use crate::chaos::schedule::{Condition, Does, HOMES};
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    let mut note = |what, is_so: bool| *found.entry(what).or_default() += usize::from(is_so);
    for seed in 0..60 {
        let mut state = State::default();
        for (number, step) in with_chaos(seed, 40, ALL).steps.iter().enumerate() {
            let next = state.after(step).unwrap();
            let Step::Chaos(actions) = step else {
                note(
                    "a client dials or sends",
                    matches!(step, Step::Dial(_) | Step::Send(_)),
                );
                state = next;
                continue;
            };
            let (before, after) = (&state.world, &next.world);
            let moved = |(number, slice): (&u8, &crate::chaos::schedule::Slice)| {
                before
                    .slices
                    .get(number)
                    .is_some_and(|before| before.of != slice.of)
            };
            note("a slice moves", number > 0 && after.slices.iter().any(moved));
            let lists =
                |wanted: fn(&crate::chaos::schedule::Slice) -> bool| after.slices.values().any(wanted);
            note("null", lists(|slice| slice.endpoints.is_none()));
            note(
                "empty",
                lists(|slice| slice.endpoints.as_ref().is_some_and(Vec::is_empty)),
            );
            note(
                "published",
                lists(|slice| {
                    slice
                        .endpoints
                        .iter()
                        .flatten()
                        .any(|one| one.condition == Condition::Published)
                }),
            );
            note(
                "a node port passes on",
                number > 0 && {
                    let owner = |world: &crate::chaos::world::World| {
                        world.owner(crate::chaos::world::Front::NodePort(0))
                    };
                    owner(before).is_some() && owner(after).is_some() && owner(before) != owner(after)
                },
            );
            let faults = actions
                .iter()
                .filter(|one| matches!(one.does, Does::Fault(_)))
                .count();
            note("writes during a fault", faults > 0 && actions.len() > faults);
            note("a burst", number > 0 && faults == 0 && actions.len() > 10);
            let is_there = |number: usize| after.services.contains_key(&u8::try_from(number).unwrap());
            let same =
                |one: usize, other: usize| HOMES[one].1 == HOMES[other].1 && is_there(one) && is_there(other);
            note("equal names in two namespaces", same(3, 4));
            let starts = HOMES[1].1.starts_with(HOMES[0].1) && is_there(0) && is_there(1);
            note("one name begins with another", starts);
            state = next;
        }
        let kept = state.sockets.values();
        note("a socket is kept through it", kept.count() > 0);
    }
    assert_eq!(found.len(), 11, "{found:?}");
    assert!(found.values().all(|count| *count >= 10), "{found:?}");
}

#[test]
fn without_moves_and_faults_there_are_none() {
    use crate::{chaos::schedule::Does, churn};
    for seed in 0..20 {
        for step in with_chaos(seed, 60, Churn::default()).steps {
            let Step::Chaos(actions) = step else { continue };
            assert_eq!(churn::faults(&actions).count(), 0);
            for action in actions {
                assert_eq!(action.at_ms, 0, "no wait");
                if let Does::Slice(write) = action.does {
                    assert!(write.to.is_none_or(|to| to.of == write.slice / 2));
                }
            }
        }
    }
}
