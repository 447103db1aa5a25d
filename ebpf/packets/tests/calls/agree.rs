//! Programs and model agree.

use lb_abi::Counter;
use lb_packets::calls::{Call, NamedAddress, SocketKind, Step, To, model};

use super::support::{CASES, isolated};

/// A counter of sockets that no case reaches, and why.
const UNREACHED: [(Counter, &str); 1] = [(
    Counter::ReverseFull,
    "SOCKET_REVNAT forgets the least recently used entry rather than refuse one",
)];

#[test]
fn programs_and_model_agree_on_cases_that_reach_every_counter_of_sockets() {
    isolated(|runner| {
        let report = runner.run(model::permitted);
        if let Some(failure) = &report.failure {
            panic!("{failure}");
        }
        assert_eq!(report.cases, CASES);
        println!(
            "{} calls of {CASES} cases in {:.1} s",
            report.calls,
            report.took.as_secs_f64()
        );
        for counter in Counter::ALL
            .into_iter()
            .filter(|counter| *counter < Counter::PacketPassed)
        {
            let reached = report.counters.get(&counter).copied().unwrap_or(0);
            match UNREACHED.iter().find(|(unreached, _)| *unreached == counter) {
                Some((_, why)) => assert_eq!(reached, 0, "{}: it is said that {why}", counter.name()),
                None => assert!(reached > 0, "no call counted {}", counter.name()),
            }
        }
    });
}

/// A datagram socket that has been connected to 127.0.0.7 sends from 127.0.0.1, so 0.0.0.0 is 127.0.0.1 to it from then on.
#[test]
fn the_source_of_a_socket_connected_to_loopback_is_that_of_its_route() {
    isolated(|runner| {
        let to = |place, port| {
            let to = To {
                place,
                port,
                v4: true,
                plain: true,
            };
            Step::Call(0, Call::Connect(to))
        };
        let steps = [
            Step::Call(
                0,
                Call::Open {
                    kind: SocketKind::V4,
                    tcp: false,
                    pod: true,
                },
            ),
            to(NamedAddress::LoopbackAlso, 30081),
            to(NamedAddress::Unspecified, 30080),
            Step::Call(0, Call::Peer),
        ];
        let report = runner.run_steps(model::permitted, &steps);
        if let Some(failure) = &report.failure {
            panic!("{failure}");
        }
        assert_eq!(report.calls, 4);
    });
}

/// Whichever backend the Service has chosen, one of these is its own address: the socket talks to no frontend from then on.
#[test]
fn a_socket_that_connects_to_its_backends_own_address_is_shown_that_address() {
    isolated(|runner| {
        let connect = |place, port| {
            let to = To {
                place,
                port,
                v4: true,
                plain: true,
            };
            Step::Call(0, Call::Connect(to))
        };
        let mut steps = vec![Step::Call(
            0,
            Call::Open {
                kind: SocketKind::V4,
                tcp: false,
                pod: true,
            },
        )];
        for place in [NamedAddress::PodA, NamedAddress::PodB, NamedAddress::Remote] {
            let own = [connect(place, 8080), Step::Call(0, Call::Peer)];
            steps.extend([connect(NamedAddress::ClusterIp, 80), Step::Call(0, Call::Peer)]);
            steps.extend(own);
        }
        // By the frontend once more, and closed: the list of its backends is whole.
        steps.extend([connect(NamedAddress::ClusterIp, 80), Step::Call(0, Call::Peer)]);
        steps.push(Step::Call(0, Call::Close));
        let report = runner.run_steps(model::permitted, &steps);
        if let Some(failure) = &report.failure {
            panic!("{failure}");
        }
        assert_eq!(report.calls, 16);
    });
}
