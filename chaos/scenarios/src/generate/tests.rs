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
