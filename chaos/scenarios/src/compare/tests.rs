//! The compared aspects, and which differences are permitted.

use super::*;
use crate::step::{Address, Change, Kind, Step};

mod chaos;

fn service(port: u16, node_port: u16) -> Service {
    Service {
        kind: Kind::NodePort,
        port,
        node_port: Some(node_port),
        external_ips: Vec::new(),
        load_balancer: Vec::new(),
        external_local: false,
        internal_local: false,
        affinity: false,
        endpoints: [Backend::B1, Backend::B2]
            .map(|one| (one, Condition::Ready))
            .into(),
    }
}

fn state(change: impl FnOnce(&mut Service)) -> State {
    let mut to = service(80, 30500);
    change(&mut to);
    let change = Change {
        service: 1,
        to: Some(to),
    };
    State::default()
        .after(&Step::Write(vec![change]))
        .expect("it makes sense")
}

fn subject(state: &State, from: Vantage, protocol: Protocol, to: To) -> Subject<'_> {
    Subject {
        from,
        protocol,
        to,
        source_port: None,
        kept: None,
        state,
    }
}

fn by(who: &str, source: &str) -> Observation {
    Observation {
        outcome: Outcome::Answered,
        words: format!("answered by {who}"),
        by: Some(who.to_owned()),
        source: Some(source.to_owned()),
        peer: Some(Peer::Dialled),
    }
}

fn none(outcome: Outcome, words: &str) -> Observation {
    Observation {
        outcome,
        words: words.to_owned(),
        by: None,
        source: None,
        peer: None,
    }
}

/// The aspects that differ, and whether each is permitted.
fn differ(subject: &Subject<'_>, a: &[Observation], b: &[Observation]) -> Vec<(Aspect, bool)> {
    let all = subject.differences([a, b], &BTreeSet::new());
    all.iter()
        .map(|one| (one.aspect, one.permitted.is_some()))
        .collect()
}

const CIP: To = To::ClusterIp { service: 1 };
const NODE_PORT: To = To::At {
    address: Address::Node1,
    port: 30500,
};

#[test]
fn who_answers_is_compared_as_a_set_and_by_service() {
    let state = state(|_| {});
    let dial = subject(&state, Vantage::Pod1, Protocol::Tcp, CIP);
    let both = [by("b1:8081", "pod1"), by("b2:8081", "pod1")];
    let turned = [both[1].clone(), both[0].clone(), both[1].clone()];
    assert_eq!(differ(&dial, &both, &turned), []);
    assert_eq!(differ(&dial, &both, &both[..1]), [(Aspect::Served, false)]);
    // The same pod, at another Service's port.
    let astray = [by("b1:8082", "pod1")];
    assert_eq!(differ(&dial, &both, &astray), [(Aspect::Outcome, false)]);
    let silent = [none(Outcome::Silent, "nothing")];
    assert_eq!(differ(&dial, &both, &silent), [(Aspect::Outcome, false)]);
}

#[test]
fn one_of_several_is_chance_for_a_socket_that_is_kept() {
    let state = state(|_| {});
    let kept = |before: [Option<&str>; 2]| Subject {
        kept: Some(KeptSocket {
            before: before.map(|by| by.map(str::to_owned)),
            is_connected: before[0].is_some(),
        }),
        ..subject(&state, Vantage::Pod1, Protocol::Udp, CIP)
    };
    let (a, b) = ([by("b1:8081", "pod1")], [by("b2:8081", "pod1")]);
    assert_eq!(differ(&kept([None, None]), &a, &b), []);
    let same = kept([Some("b1:8081"), Some("b2:8081")]);
    assert_eq!(differ(&same, &a, &b), []);
    let moved = kept([Some("b2:8081"), Some("b2:8081")]);
    assert_eq!(differ(&moved, &a, &b), [(Aspect::Moved, false)]);
    let within = [a[0].clone(), b[0].clone()];
    assert_eq!(
        differ(&kept([None, None]), &within, &b),
        [(Aspect::Moved, false)],
        "among the datagrams of one step"
    );
}

#[test]
fn a_backend_that_gets_no_connections_any_more_may_be_left() {
    let left = state(|service| service.endpoints.retain(|one, _| *one == Backend::B1));
    let local = state(|service| service.internal_local = true);
    for state in [&left, &local] {
        let kept = Some(KeptSocket {
            before: [Some("b2:8081".to_owned()), Some("b1:8081".to_owned())],
            is_connected: true,
        });
        let socket = Subject {
            kept,
            ..subject(state, Vantage::Pod1, Protocol::Udp, CIP)
        };
        let answers = [by("b1:8081", "pod1")];
        assert_eq!(differ(&socket, &answers, &answers), []);
    }
}

#[test]
fn a_refusal_and_silence_are_the_same_only_at_frontends_for_outside() {
    let state = state(|service| service.endpoints.clear());
    let refused = [none(Outcome::Refused, "ECONNREFUSED from connect")];
    let silent = [none(Outcome::Silent, "nothing")];
    for (from, to, is_permitted) in [
        (Vantage::Outside, NODE_PORT, true),
        (Vantage::Pod1, CIP, false),
        (Vantage::Host1, To::Loopback { port: 30500 }, true),
    ] {
        let dial = subject(&state, from, Protocol::Tcp, to);
        assert_eq!(
            differ(&dial, &refused, &silent),
            [(Aspect::Outcome, is_permitted)]
        );
    }
    let datagram = subject(&state, Vantage::Pod1, Protocol::Udp, CIP);
    assert_eq!(differ(&datagram, &refused, &silent), [(Aspect::Outcome, true)]);
    let other = [none(Outcome::Refused, "EPERM from connect")];
    let dial = subject(&state, Vantage::Pod1, Protocol::Tcp, CIP);
    assert_eq!(differ(&dial, &refused, &other), [(Aspect::Error, true)]);
    let answered = [by("b1:8081", "pod1")];
    let dial = subject(&state, Vantage::Outside, Protocol::Tcp, NODE_PORT);
    assert_eq!(differ(&dial, &answered, &silent), [(Aspect::Outcome, false)]);
}

#[test]
fn the_clients_address_is_promised_by_policy_local_and_to_pods_at_a_cluster_ip() {
    let (own, other) = ([by("b1:8081", "outside")], [by("b1:8081", "node1")]);
    let one = |service: &mut Service| service.endpoints.retain(|one, _| *one == Backend::B1);
    let local = state(|service| {
        one(service);
        service.external_local = true;
    });
    let cluster = state(one);
    for (state, from, to, is_permitted) in [
        (&local, Vantage::Outside, NODE_PORT, false),
        (&cluster, Vantage::Outside, NODE_PORT, true),
        (&cluster, Vantage::Pod1, CIP, false),
        (&cluster, Vantage::B1, CIP, true),
        (&cluster, Vantage::Host1, CIP, true),
    ] {
        let dial = subject(state, from, Protocol::Tcp, to);
        let expected = [(Aspect::Source, is_permitted)];
        assert_eq!(differ(&dial, &own, &other), expected, "{from:?} {to:?}");
    }
}

#[test]
fn an_answer_from_a_third_address_is_a_finding() {
    let state = state(|_| {});
    let from = |peer| {
        [Observation {
            peer: Some(peer),
            ..by("b1:8081", "pod1")
        }]
    };
    let third = Peer::Other("192.0.2.1:1".parse().expect("an address"));
    for (protocol, peer, is_permitted) in [
        (Protocol::Tcp, Peer::Backend, true),
        (Protocol::Tcp, third, false),
        (Protocol::Udp, Peer::Backend, false),
    ] {
        let dial = subject(&state, Vantage::Pod1, protocol, CIP);
        let found = differ(&dial, &from(Peer::Dialled), &from(peer));
        assert_eq!(found, [(Aspect::Peer, is_permitted)], "{protocol} {peer}");
    }
}

#[test]
fn a_connected_socket_may_end_with_its_backend_and_not_before() {
    let ended = [none(Outcome::Cut, "ECONNABORTED from receive")];
    let answered = [by("b1:8081", "pod1")];
    let socket = |state| Subject {
        kept: Some(KeptSocket {
            before: [Some("b2:8081".to_owned()), Some("b1:8081".to_owned())],
            is_connected: true,
        }),
        ..subject(state, Vantage::Pod1, Protocol::UdpConnected, CIP)
    };
    let left = state(|service| service.endpoints.retain(|one, _| *one == Backend::B1));
    let stays = state(|_| {});
    for (state, is_permitted) in [(&left, true), (&stays, false)] {
        let found = differ(&socket(state), &ended, &answered);
        assert_eq!(found, [(Aspect::Outcome, is_permitted)]);
    }
}

#[test]
fn what_only_one_known_deviation_permits_needs_it() {
    let state = state(|service| service.endpoints.clear());
    let socket = Subject {
        kept: Some(KeptSocket::default()),
        ..subject(&state, Vantage::Outside, Protocol::Udp, NODE_PORT)
    };
    let (stays, silent) = ([by("b1:8081", "outside")], [none(Outcome::Silent, "nothing")]);
    assert_eq!(differ(&socket, &silent, &stays), [(Aspect::Outcome, false)]);
    let known = BTreeSet::from(["udp-zero-and-back".to_owned()]);
    let all = socket.differences([&silent, &stays], &known);
    assert!(all[0].permitted.is_some());
}

#[test]
fn a_connection_runs_on_to_an_endpoint_that_is_no_longer_ready_and_none_begins_there() {
    let unready = state(|service| {
        service.endpoints.insert(Backend::B2, Condition::Unready);
    });
    let (one, other) = ([by("b1:8081", "b2")], [by("b2:8081", "b2")]);
    let socket = |before: [Option<&str>; 2]| Subject {
        kept: Some(KeptSocket {
            before: before.map(|by| by.map(str::to_owned)),
            is_connected: before[0].is_some(),
        }),
        ..subject(&unready, Vantage::B2, Protocol::Tcp, NODE_PORT)
    };
    let goes_on = socket([Some("b1:8081"), Some("b2:8081")]);
    assert_eq!(differ(&goes_on, &one, &other), []);
    let begins = socket([None, None]);
    assert_eq!(differ(&begins, &one, &other), [(Aspect::Outcome, false)]);
}

#[test]
fn flows_outlive_their_service_alone_and_not_a_machines_own_conversation() {
    const AT: To = To::At {
        address: Address::Outside,
        port: 9000,
    };
    let never = state(|_| {});
    let had = state(|service| {
        service.port = 9000;
        service.external_ips = vec![Address::Outside];
    });
    let gives_up = Change {
        service: 1,
        to: Some(service(9000, 30500)),
    };
    let no_more = had.after(&Step::Write(vec![gives_up])).expect("it makes sense");
    let known = BTreeSet::from(["udp-deleted-no-misdelivery".to_owned()]);
    let (silent, answered) = ([none(Outcome::Silent, "nothing")], [by("outside:9000", "node1")]);
    for (state, is_permitted) in [(&never, false), (&no_more, true)] {
        let socket = Subject {
            kept: Some(KeptSocket::default()),
            ..subject(state, Vantage::Host1, Protocol::Udp, AT)
        };
        let all = socket.differences([&silent, &answered], &known);
        let found: Vec<_> = all
            .iter()
            .map(|one| (one.aspect, one.permitted.is_some()))
            .collect();
        assert_eq!(found, [(Aspect::Outcome, is_permitted)]);
    }
}

#[test]
fn a_policy_may_lead_a_sockets_datagrams_elsewhere_and_that_a_backend_leaves_does_so() {
    let socket = |state| Subject {
        kept: Some(KeptSocket {
            before: [Some("b1:8081".to_owned()), Some("b1:8081".to_owned())],
            is_connected: false,
        }),
        ..subject(state, Vantage::Pod2, Protocol::Udp, CIP)
    };
    let local = state(|service| {
        service.internal_local = true;
        service.endpoints.retain(|one, _| *one == Backend::B1);
    });
    let left = state(|service| {
        service.internal_local = true;
        service.endpoints.retain(|one, _| *one == Backend::B3);
    });
    let (refused, answered) = ([none(Outcome::Refused, "ECONNREFUSED")], [by("b1:8081", "pod2")]);
    for (state, is_permitted) in [(&local, true), (&left, false)] {
        let found = differ(&socket(state), &refused, &answered);
        assert_eq!(found, [(Aspect::Outcome, is_permitted)]);
    }
    let another_services = [by("b1:8082", "pod2")];
    let found = differ(&socket(&local), &another_services, &answered);
    assert_eq!(found, [(Aspect::Outcome, false)]);
}

#[test]
fn each_reason_is_in_words() {
    for one in &permitted::ALL {
        assert!(one.what.len() > 10 && one.reason.len() > 10, "{one:?}");
    }
}
