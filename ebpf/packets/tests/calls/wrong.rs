//! Models that are wrong in one rule each: if the programs had that defect, and the model had not, it would be found in
//! the same way.

use lb_abi::Counter;
use lb_packets::calls::{
    Call,
    model::{Outcome, State, permitted},
};

use super::support::{CASES, Runner, isolated};

/// Found within the cases of the tests, and shrunk to this many steps at most.
fn found(runner: &Runner, model: fn(&State, usize, Call, u32) -> Vec<Outcome>, steps: usize) {
    let report = runner.run(model);
    let failure = report
        .failure
        .unwrap_or_else(|| panic!("not found in {CASES} cases"));
    println!(
        "found after {} cases, in {} steps",
        report.cases,
        failure.steps().len()
    );
    assert!(failure.steps().len() <= steps, "{failure}");
    let shown = failure.to_string();
    assert!(shown.contains("--seed 20260301"), "{shown}");
}

/// What is permitted where another state is taken for this one, with the maps that programs do not write as they are.
fn mistaken(state: &State, slot: usize, call: Call, now: u32, change: impl Fn(&mut State)) -> Vec<Outcome> {
    let mut other = state.clone();
    change(&mut other);
    permitted(&other, slot, call, now)
}

#[test]
fn a_datagram_that_goes_to_another_backend_than_the_last_is_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| mistaken(state, slot, call, now, |state| state.chosen.clear()),
            4,
        );
    });
}

#[test]
fn a_frontend_that_is_not_shown_is_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| {
                let mut outcomes = permitted(state, slot, call, now);
                for outcome in &mut outcomes {
                    if outcome.seen.counters.remove(&Counter::RecvmsgReversed).is_some() {
                        outcome.seen.shown = outcome.seen.server;
                    }
                }
                outcomes
            },
            3,
        );
    });
}

#[test]
fn the_first_frontend_of_a_backend_in_the_place_of_the_last_is_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| {
                let mut outcomes = permitted(state, slot, call, now);
                for outcome in &mut outcomes {
                    for (key, there) in &state.reverse {
                        if let Some(noted) = outcome.state.reverse.get_mut(key) {
                            *noted = *there;
                        }
                    }
                }
                outcomes
            },
            5,
        );
    });
}

#[test]
fn a_note_that_outlives_its_socket_is_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| {
                let mut outcomes = permitted(state, slot, call, now);
                if call == Call::Close {
                    for outcome in &mut outcomes {
                        outcome.state.chosen.clone_from(&state.chosen);
                    }
                }
                outcomes
            },
            3,
        );
    });
}

#[test]
fn affinity_that_is_not_kept_is_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| {
                mistaken(state, slot, call, now, |state| {
                    for frontend in state.maps.frontends.values_mut() {
                        frontend.affinity_seconds = 0;
                    }
                })
            },
            4,
        );
    });
}

#[test]
fn node_ports_at_loopback_in_every_namespace_are_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| {
                mistaken(state, slot, call, now, |state| {
                    state.ids.pod = state.ids.node;
                })
            },
            4,
        );
    });
}

#[test]
fn an_agent_that_is_refused_as_others_are_is_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| {
                mistaken(state, slot, call, now, |state| state.maps.config.own_cgroup = 0)
            },
            5,
        );
    });
}

#[test]
fn an_ipv6_only_socket_that_is_taken_for_another_is_found() {
    isolated(|runner| {
        found(
            runner,
            |state, slot, call, now| {
                let call = match call {
                    Call::Bind(mut bound) => {
                        bound.only_v6 = false;
                        Call::Bind(bound)
                    }
                    call => call,
                };
                permitted(state, slot, call, now)
            },
            2,
        );
    });
}
