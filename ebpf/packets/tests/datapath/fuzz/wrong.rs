//! Models that are wrong in one rule each: if the programs had that defect, and the model had not, it would be found in
//! the same way.

use lb_abi::{Counter, flow_flags, frontend_flags};
use lb_packets::model::{Input, Observed, Outcome, Read, State, Verdict, expected, read};

use super::support::{CASES, FIRST, run};

/// Found within the cases of the tests; prints after how many.
fn found(what: &str, model: fn(&State, &Input<'_>, &Observed<'_>) -> Outcome) {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let report = run(model, &FIRST);
    assert!(report.mismatch.is_some(), "{what}: not found in {CASES} cases");
    println!("{what}: found after {} cases", report.cases);
}

fn translated(outcome: &Outcome) -> bool {
    matches!(
        outcome.counter,
        Counter::FlowOpened | Counter::FlowForwarded | Counter::FlowReplied
    )
}

/// The frame that came out, with its layout, of a packet that was translated.
fn layout(outcome: &Outcome, input: &Input<'_>) -> Option<lb_packets::model::Frame> {
    match read(&outcome.frame, input.gso_size != 0) {
        Read::Whole(frame) if translated(outcome) => Some(frame),
        _ => None,
    }
}

#[test]
fn a_transport_checksum_that_does_not_follow_is_found() {
    found(
        "a transport checksum that does not follow",
        |state, input, observed| {
            let mut outcome = expected(state, input, observed);
            if let (Some(new), Read::Whole(old)) =
                (layout(&outcome, input), read(input.frame, input.gso_size != 0))
            {
                let field = match new.protocol {
                    lb_abi::TCP => 16..18,
                    lb_abi::UDP => 6..8,
                    _ => 8..12,
                };
                if !new.later() {
                    let was = &input.frame[old.payload..][field.clone()];
                    outcome.frame[new.payload..][field].copy_from_slice(was);
                }
            }
            outcome
        },
    );
}

#[test]
fn a_hop_that_is_not_counted_is_found() {
    found("a hop that is not counted", |state, input, observed| {
        let mut outcome = expected(state, input, observed);
        let counted = outcome.verdict == Verdict::Redirect && input.hook.inbound();
        if let Some(frame) = layout(&outcome, input).filter(|frame| counted && !frame.v4) {
            outcome.frame[frame.ip + 7] += 1;
        }
        outcome
    });
}

#[test]
fn a_reply_that_is_not_expected_is_found() {
    found("a reply's entry that is not stored", |state, input, observed| {
        let mut outcome = expected(state, input, observed);
        if outcome.counter == Counter::FlowOpened {
            let before = &state.flows;
            outcome
                .flows
                .retain(|key, flow| before.contains_key(key) || flow.flags & flow_flags::REPLY == 0);
        }
        outcome
    });
}

#[test]
fn a_time_limit_of_one_second_more_is_found() {
    found("time limits of a second more", |state, input, observed| {
        let mut younger = state.clone();
        // Younger ones are not over, and would look like what the packet renews.
        let old = |last_seen: u32| input.now.wrapping_sub(last_seen).cast_signed() > 8;
        for flow in younger.flows.values_mut().filter(|flow| old(flow.last_seen)) {
            flow.last_seen = flow.last_seen.wrapping_add(1);
        }
        let mut outcome = expected(&younger, input, observed);
        for (key, flow) in &mut outcome.flows {
            if younger.flows.get(key) == Some(flow) {
                flow.last_seen = state.flows[key].last_seen;
            }
        }
        outcome
    });
}

#[test]
fn ranges_of_clients_that_are_not_asked_are_found() {
    found(
        "ranges of clients that are not asked",
        |state, input, observed| {
            let mut open = state.clone();
            for frontend in open.frontends.values_mut() {
                frontend.flags &= !frontend_flags::SOURCE_RANGES;
            }
            expected(&open, input, observed)
        },
    );
}

#[test]
fn a_random_slot_in_the_place_of_the_hash_is_found() {
    found("Maglev slots at random", |state, input, observed| {
        let mut random = state.clone();
        for frontend in random.frontends.values_mut() {
            frontend.flags &= !frontend_flags::MAGLEV;
        }
        expected(&random, input, observed)
    });
}

#[test]
fn affinity_that_is_not_kept_is_found() {
    found("affinity that is not kept", |state, input, observed| {
        let mut fickle = state.clone();
        for frontend in fickle.frontends.values_mut() {
            frontend.affinity_seconds = 0;
        }
        expected(&fickle, input, observed)
    });
}

#[test]
fn fragments_that_are_not_remembered_are_found() {
    found("fragments that are not remembered", |state, input, observed| {
        let mut forgetful = state.clone();
        forgetful.fragments.clear();
        let mut outcome = expected(&forgetful, input, observed);
        for (key, ports) in &state.fragments {
            outcome.fragments.entry(*key).or_insert(*ports);
        }
        outcome
    });
}

#[test]
fn errors_about_flows_that_are_left_alone_are_found() {
    found("ICMP errors that are not translated", |state, input, observed| {
        let mut outcome = expected(state, input, observed);
        if outcome.counter == Counter::FlowRelated {
            outcome.counter = Counter::PacketPassed;
        }
        outcome
    });
}

#[test]
fn a_port_that_is_shared_by_two_flows_is_found() {
    found(
        "a reply's key that is taken from its flow",
        |state, input, observed| {
            let mut empty = state.clone();
            empty.flows.retain(|_, flow| flow.flags & flow_flags::REPLY == 0);
            let mut outcome = expected(&empty, input, observed);
            for (key, flow) in &state.flows {
                outcome.flows.entry(*key).or_insert(*flow);
            }
            outcome
        },
    );
}

#[test]
fn a_limit_of_rejections_that_is_not_kept_is_found() {
    found(
        "a limit of rejections that is not kept",
        |state, input, observed| {
            let mut unlimited = state.clone();
            unlimited.config.rejects_per_second = 0;
            expected(&unlimited, input, observed)
        },
    );
}

#[test]
fn an_answer_with_a_wrong_number_is_found() {
    found(
        "a RST that acknowledges a byte too few",
        |state, input, observed| {
            let mut outcome = expected(state, input, observed);
            let rejected =
                outcome.counter == Counter::RejectedNoBackend && outcome.verdict == Verdict::Redirect;
            match read(&outcome.frame, false) {
                Read::Whole(frame) if rejected && frame.protocol == lb_abi::TCP => {
                    outcome.frame[frame.payload + 11] ^= 1;
                }
                _ => {}
            }
            outcome
        },
    );
}

#[test]
fn a_closing_flow_that_outlives_a_connection_around_it_is_found() {
    found(
        "a closing flow that outlives a connection around it",
        |state, input, observed| {
            let mut outcome = expected(state, input, observed);
            if outcome.counter == Counter::PacketPassed {
                outcome.flows.clone_from(&state.flows);
            }
            outcome
        },
    );
}

#[test]
fn a_tuple_that_is_taken_from_a_socket_of_the_node_is_found() {
    found(
        "a tuple that is taken from a socket of the node",
        |state, input, observed| {
            let mut sockets = input.sockets.clone();
            // Ports that are allocated stay those of sockets.
            let is_allocated = |port: lb_abi::Port| port.get() >= state.config.snat_first;
            sockets.connected.retain(|sent| is_allocated(sent.source_port));
            let blind = Input {
                sockets: &sockets,
                ..input.clone()
            };
            expected(state, &blind, observed)
        },
    );
}
