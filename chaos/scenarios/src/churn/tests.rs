//! What comparisons see of a world is what the world itself says.

use super::*;
use crate::{
    chaos::generate::{Wish, schedule as generated},
    compare::{Subject, identity},
    state::State,
    step::{Address, Protocol, Step},
};

/// The states after each write of some seeds' schedules.
fn states() -> Vec<State> {
    let mut all = Vec::new();
    for seed in 0..20 {
        let wish = Wish {
            lasts_ms: 60_000,
            kinds: BTreeSet::new(),
            nodes: NODES,
            moves: true,
        };
        let first = Step::Chaos(writes(&World::first()));
        let mut state = State::default().after(&first).unwrap();
        assert_eq!(state.world, World::first());
        for action in generated(seed, &wish).actions {
            // It may change nothing.
            if let Some(next) = state.after(&Step::Chaos(vec![Action { at_ms: 0, ..action }])) {
                state = next;
                all.push(state.clone());
            }
        }
        // The generator has hardly any endpoint with two conditions.
        let endpoints = [
            (0, schedule::Condition::Terminating),
            (1, schedule::Condition::Stopped),
        ]
        .map(|(backend, condition)| schedule::Endpoint { backend, condition });
        for slice in 0..schedule::SLICES {
            let to = Some(schedule::Slice {
                of: slice / 2,
                endpoints: Some(endpoints.to_vec()),
            });
            let does = Does::Slice(SliceWrite { slice, to });
            all.extend(state.after(&Step::Chaos(vec![Action { at_ms: 0, does }])));
        }
    }
    all
}

fn destinations(state: &State) -> Vec<To> {
    let cluster_ips = state
        .services
        .keys()
        .map(|service| To::ClusterIp { service: *service });
    let at = |port| [Address::Node1, Address::Node2].map(|address| To::At { address, port });
    cluster_ips.chain(NODE_PORTS.into_iter().flat_map(at)).collect()
}

#[test]
fn the_backends_expected_are_those_that_the_world_serves() {
    let (mut exact, mut disputed_ones, mut near) = (0, 0, 0);
    for state in states() {
        for to in destinations(&state) {
            for from in Vantage::ALL {
                let Some((number, _)) = state.front(to) else {
                    continue;
                };
                let served = served(&state.world, number - FIRST, from, to);
                assert!(served.by.iter().all(|(owner, _)| FIRST + owner == number), "{to}");
                let subject = Subject {
                    from,
                    protocol: Protocol::Tcp,
                    to,
                    source_port: None,
                    kept: None,
                    state: &state,
                };
                let backends = served.by.iter();
                let by: BTreeSet<String> = backends
                    .map(|(_, backend)| identity(Backend::ALL[usize::from(*backend)], number))
                    .collect();
                let found = disputed(&state.world, number, from, to);
                let service = &state.services[&number];
                if let Some(found) = found {
                    let may: BTreeSet<String> = found.by.iter().map(|one| identity(*one, number)).collect();
                    assert_eq!((may, found.may_fail), (by, served.terms.may_fail));
                    disputed_ones += 1;
                } else if !service.external_local && !service.internal_local {
                    assert!(served.is_exact());
                    assert_eq!(subject.expected(), by, "{to} from {}", from.name());
                    assert_eq!(subject.near(), by);
                    exact += 1;
                } else if served.is_exact() && subject.near() != by {
                    // Of those near, the ones that still serve while they terminate count where none is ready: a comparison
                    // takes both, and is by what the two show.
                    let listed: BTreeSet<String> = service
                        .endpoints
                        .keys()
                        .map(|one| identity(*one, number))
                        .collect();
                    assert!(by.is_subset(&listed), "{to} from {}", from.name());
                    near += 1;
                }
            }
        }
    }
    assert!(
        exact > 10_000 && disputed_ones > 10 && near > 0,
        "{exact} {disputed_ones} {near}"
    );
}

#[test]
fn only_what_is_sound_is_a_step() {
    let first = State::default()
        .after(&Step::Chaos(writes(&World::first())))
        .unwrap();
    let fault = |kind, lasts_ms| {
        Does::Fault(schedule::Fault {
            kind,
            node: None,
            lasts_ms,
        })
    };
    let deleted = |service| Does::Service(ServiceWrite { service, to: None });
    for (does, is_valid) in [
        (deleted(0), true),
        (deleted(schedule::SERVICES), false),
        (Does::Slice(SliceWrite { slice: 3, to: None }), true),
        (Does::Annotate(2), true),
        (fault(FaultKind::AgentKilled, 0), true),
        (fault(FaultKind::AgentDown, 900_000), false),
        (fault(FaultKind::PinsLost, 0), false),
    ] {
        let step = Step::Chaos(vec![Action { at_ms: 0, does }]);
        assert_eq!(first.after(&step).is_some(), is_valid, "{step}");
    }
    let twice = [100, 0].map(|at_ms| Action {
        at_ms,
        does: Does::Annotate(0),
    });
    assert_eq!(first.after(&Step::Chaos(twice.into())), None, "times go on");
    assert_eq!(first.after(&Step::Chaos(Vec::new())), None, "nothing");
    let again = Does::Service(ServiceWrite {
        service: 0,
        to: Some(first.world.services[&0]),
    });
    let again = Step::Chaos(vec![Action {
        at_ms: 0,
        does: again,
    }]);
    assert_eq!(first.after(&again), None, "it is so already");
}

#[test]
fn one_node_port_is_of_one_service() {
    let own = |service| {
        let to = Service {
            node_port: Some(NODE_PORTS[0]),
            kind: Kind::NodePort,
            ..services(&World::first())[&FIRST].clone()
        };
        Step::Write(vec![crate::step::Change {
            service,
            to: Some(to),
        }])
    };
    let first = Step::Chaos(writes(&World::first()));
    let after = |steps: &[Step]| {
        steps
            .iter()
            .try_fold(State::default(), |state, step| state.after(step))
    };
    assert!(after(&[own(1)]).is_some());
    assert_eq!(after(&[own(1), first.clone()]), None);
    assert_eq!(after(&[first.clone(), own(1)]), None);
    assert_eq!(after(&[own(FIRST)]), None, "that number is chaos's");
}
