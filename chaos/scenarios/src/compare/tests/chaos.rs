//! Differences after what chaos has written.

use super::*;
use crate::chaos::{
    schedule::{self, Action, Does, Endpoint, Slice, SliceWrite},
    world::World,
};

/// Service `t` of chaos's first state, whose second slice lists this.
fn of_chaos(listed: &[(u8, schedule::Condition)]) -> State {
    let mut world = World::first();
    let endpoint = |(backend, condition): &(u8, schedule::Condition)| Endpoint {
        backend: *backend,
        condition: *condition,
    };
    let endpoints = Some(listed.iter().map(endpoint).collect());
    world.slices.insert(1, Slice { of: 0, endpoints });
    State::default()
        .after(&Step::Chaos(churn::writes(&world)))
        .expect("it makes sense")
}

const T: To = To::ClusterIp {
    service: churn::FIRST,
};

#[test]
fn a_backend_of_a_service_whose_name_begins_alike_is_a_finding_at_their_common_port() {
    let state = of_chaos(&[]);
    let dial = subject(&state, Vantage::Pod2, Protocol::Tcp, T);
    let (own, astray) = ([by("b1:8001", "pod2")], [by("b3:8001", "pod2")]);
    assert_eq!(differ(&dial, &own, &own), []);
    assert_eq!(differ(&dial, &own, &astray), [(Aspect::Outcome, false)]);
    let none = [none(Outcome::Refused, "ECONNREFUSED")];
    assert_eq!(differ(&dial, &own, &none), [(Aspect::Outcome, false)]);
}

#[test]
fn which_of_two_conditions_counts_may_differ_and_nothing_else() {
    use schedule::Condition::{Ready, Stopped, Unready};
    // The first slice lists b1 as ready.
    let disputed = of_chaos(&[(0, Unready), (1, Ready)]);
    let dial = subject(&disputed, Vantage::Pod2, Protocol::Tcp, T);
    let [one, both, other, third] = [
        &["b2:8001"][..],
        &["b1:8001", "b2:8001"],
        &["b1:8001"],
        &["b3:8001"],
    ]
    .map(|names| names.iter().map(|name| by(name, "pod2")).collect::<Vec<_>>());
    assert_eq!(differ(&dial, &one, &both), [(Aspect::Served, true)]);
    assert_eq!(differ(&dial, &other, &third), [(Aspect::Outcome, false)]);
    let refused = [none(Outcome::Refused, "ECONNREFUSED")];
    assert_eq!(
        differ(&dial, &one, &refused),
        [(Aspect::Outcome, false)],
        "one endpoint is ready in any case"
    );
    let only = of_chaos(&[(0, Stopped)]);
    let dial = subject(&only, Vantage::Pod2, Protocol::Tcp, T);
    assert_eq!(differ(&dial, &other, &refused), [(Aspect::Outcome, true)]);
    let alike = of_chaos(&[(0, Ready), (1, Ready)]);
    let dial = subject(&alike, Vantage::Pod2, Protocol::Tcp, T);
    assert_eq!(differ(&dial, &one, &both), [(Aspect::Served, false)]);
}

#[test]
fn a_backend_that_has_left_between_two_writes_and_come_back_may_have_been_left() {
    let state = of_chaos(&[]);
    let list = |backends: &[u8]| {
        let endpoint = |backend: &u8| Endpoint {
            backend: *backend,
            condition: schedule::Condition::Ready,
        };
        let endpoints = Some(backends.iter().map(endpoint).collect());
        let does = Does::Slice(SliceWrite {
            slice: 1,
            to: Some(Slice { of: 0, endpoints }),
        });
        Action { at_ms: 0, does }
    };
    let both = state.after(&Step::Chaos(vec![list(&[1])])).unwrap();
    let returned = both.after(&Step::Chaos(vec![list(&[]), list(&[1])])).unwrap();
    let later = returned.after(&Step::Chaos(vec![list(&[1, 2])])).unwrap();
    let (stays, moves) = ([by("b2:8001", "pod2")], [by("b1:8001", "pod2")]);
    let ended = [none(Outcome::Cut, "ECONNRESET from receive")];
    for (state, moved, cut) in [(&returned, None, true), (&later, Some(false), false)] {
        let socket = |protocol| Subject {
            kept: Some(KeptSocket {
                before: [Some("b2:8001".to_owned()), Some("b2:8001".to_owned())],
                is_connected: true,
            }),
            ..subject(state, Vantage::Pod2, protocol, T)
        };
        let moved: Vec<_> = moved.into_iter().map(|is| (Aspect::Moved, is)).collect();
        assert_eq!(differ(&socket(Protocol::Udp), &stays, &moves), moved);
        for protocol in [Protocol::Tcp, Protocol::UdpConnected] {
            assert_eq!(
                differ(&socket(protocol), &stays, &ended),
                [(Aspect::Outcome, cut)]
            );
        }
    }
}
