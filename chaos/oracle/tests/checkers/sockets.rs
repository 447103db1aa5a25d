//! Peers and ports as tables: a sentence, the attempts, what is found.

use std::time::Duration;

use oracle::{
    check::{Observed, Stream, Times},
    finding::{Finding, Weight},
    history::{Answer, Attempt, Outcome, Stage, Transport},
    peer::{Shows, peers},
    socket_binding::{Port, bound},
    source::{seen_sources, sources},
};
use rstest::rstest;

const TIMES: Times = Times {
    refuse: Duration::from_secs(1),
    probe: Duration::from_secs(3),
};
const VIP: &str = "10.96.0.2:80";
const BACKEND: &str = "10.1.0.2:8080";
/// Of another Service of the same backend.
const THIRD: &str = "10.96.0.1:80";

fn attempt(transport: Transport, number: usize, outcome: Outcome) -> Attempt {
    Attempt {
        start_us: 1_000_000,
        end_us: 1_001_000,
        client: "c1".into(),
        target: "t".into(),
        transport,
        destination: VIP.parse().unwrap(),
        local: None,
        nonce: format!("n{number}"),
        exchange: None,
        fragments: None,
        outcome,
    }
}

fn answered(peer: &str) -> Outcome {
    let answer = Answer {
        identity: "b1/UDP/8080".into(),
        source: "10.1.0.9:40000".parse().unwrap(),
        destination: BACKEND.parse().unwrap(),
        nonce: "n".into(),
        pod: None,
    };
    let peer = peer.parse().unwrap();
    Outcome::Answered { answer, peer }
}

fn failed(stage: Stage, errno: &str) -> Outcome {
    let errno = errno.into();
    Outcome::Failed { stage, errno }
}

fn stream(transport: Transport) -> Stream {
    Stream {
        client: "c1".into(),
        target: "t".into(),
        transport,
    }
}

fn attempts(transport: Transport, outcomes: Vec<Outcome>) -> Vec<Attempt> {
    let numbered = outcomes.into_iter().enumerate();
    numbered
        .map(|(number, outcome)| attempt(transport, number, outcome))
        .collect()
}

/// Weights and texts.
fn found_in(findings: &[Finding]) -> Vec<(Weight, &str)> {
    findings.iter().map(|one| (one.weight, &*one.found)).collect()
}

use Transport::{Tcp, Udp, UdpConnected};
use Weight::{Undecided, Violation};

#[rstest]
#[case::the_reply_comes_from_whom_it_was_sent_to(Udp, &[VIP, VIP], &[])]
#[case::an_unconnected_socket_knows_nothing_of_the_backend(
    Udp, &[VIP, BACKEND], &[(Violation, "1 of 2: 1 10.1.0.2:8080")]
)]
#[case::a_third_address_is_wrong(Udp, &[THIRD, VIP], &[(Violation, "1 of 2: 1 10.96.0.1:80")])]
#[case::a_connected_socket_may_show_either(UdpConnected, &[VIP, BACKEND], &[])]
#[case::a_connection_may_show_either(Tcp, &[VIP, BACKEND], &[])]
#[case::but_no_third(
    UdpConnected, &[BACKEND, THIRD], &[(Violation, "1 of 2: 1 10.96.0.1:80")]
)]
#[case::the_port_counts(Udp, &["10.96.0.2:81", VIP], &[(Violation, "1 of 2: 1 10.96.0.2:81")])]
#[case::one_answer_is_too_few(Udp, &[VIP], &[(Undecided, "only 1 of the 2 answers that decide")])]
#[case::too_few_may_be_wrong_already(
    Udp, &[THIRD], &[(Violation, "1 of 1: 1 10.96.0.1:80"), (Undecided, "only 1 of the 2 answers that decide")]
)]
fn peers_of(#[case] transport: Transport, #[case] peer: &[&str], #[case] expected: &[(Weight, &str)]) {
    let attempts = attempts(transport, peer.iter().map(|peer| answered(peer)).collect());
    let observed = Observed::new(&attempts, &[], TIMES);
    let found = peers(&observed, &stream(transport), Shows::FrontendOrBackend, 2);
    assert_eq!(found_in(&found), expected);
}

#[rstest]
#[case::every_backend_sees_the_client(&["10.1.0.9", "10.1.0.9"], &[])]
#[case::one_sees_the_node(&["10.1.0.9", "192.0.2.1"], &[(Violation, "1 of 2: 1 192.0.2.1")])]
#[case::all_see_others(&["192.0.2.1", "192.0.2.2"], &[(Violation, "2 of 2: 1 192.0.2.1, 1 192.0.2.2")])]
#[case::one_answer_is_too_few(&["10.1.0.9"], &[(Undecided, "only 1 of the 2 answers that decide")])]
#[case::too_few_may_be_wrong_already(
    &["192.0.2.1"], &[(Violation, "1 of 1: 1 192.0.2.1"), (Undecided, "only 1 of the 2 answers that decide")]
)]
fn sources_of(#[case] seen: &[&str], #[case] expected: &[(Weight, &str)]) {
    let mut outcomes: Vec<Outcome> = seen.iter().map(|source| answered_to(source)).collect();
    // Without an answer there is no source.
    outcomes.push(failed(Stage::Connect, "ECONNREFUSED"));
    let attempts = attempts(Tcp, outcomes);
    let observed = Observed::new(&attempts, &[], TIMES);
    let own = "10.1.0.9".parse().unwrap();
    assert_eq!(found_in(&sources(&observed, &stream(Tcp), own, 2)), expected);
    assert_eq!(seen_sources(&attempts).values().sum::<usize>(), seen.len());
}

/// An answer of a backend that saw this source, from whatever port.
fn answered_to(source: &str) -> Outcome {
    let mut outcome = answered(VIP);
    if let Outcome::Answered { answer, .. } = &mut outcome {
        answer.source = (source.parse::<std::net::IpAddr>().unwrap(), 50_000).into();
    }
    outcome
}

#[test]
fn where_the_frontend_must_show_the_backend_may_not() {
    for transport in [Tcp, UdpConnected] {
        let found = |peer: &str| {
            let attempts = attempts(transport, vec![answered(peer)]);
            let observed = Observed::new(&attempts, &[], TIMES);
            peers(&observed, &stream(transport), Shows::Frontend, 1).len()
        };
        assert_eq!([VIP, BACKEND, THIRD].map(found), [0, 1, 1]);
    }
}

#[test]
fn what_was_not_answered_shows_no_peer() {
    let silent = Outcome::Timeout {
        stage: Stage::Receive,
    };
    let attempts = attempts(
        Udp,
        vec![answered(VIP), silent, failed(Stage::Send, "ECONNREFUSED")],
    );
    let observed = Observed::new(&attempts, &[], TIMES);
    assert_eq!(peers(&observed, &stream(Udp), Shows::FrontendOrBackend, 1), []);
    let found = peers(&observed, &stream(Udp), Shows::FrontendOrBackend, 2);
    assert_eq!(
        found_in(&found),
        [(Undecided, "only 1 of the 2 answers that decide")]
    );
}

#[test]
fn a_finding_names_what_its_transport_permits() {
    for (transport, expected) in [
        (Udp, "replies from the address dialled"),
        (UdpConnected, "the address dialled or the backend's as the peer"),
    ] {
        let found = peers(
            &Observed::new(&[], &[], TIMES),
            &stream(transport),
            Shows::FrontendOrBackend,
            1,
        );
        assert_eq!(found[0].expected, expected);
    }
}

#[test]
fn what_is_forged_is_one_address_and_no_other() {
    let third = Shows::Always(THIRD.parse().unwrap());
    for transport in [Udp, UdpConnected] {
        let forged = attempts(transport, vec![answered(THIRD), answered(THIRD)]);
        let observed = Observed::new(&forged, &[], TIMES);
        assert_eq!(peers(&observed, &stream(transport), third, 2), []);
        let other = attempts(transport, vec![answered(THIRD), answered(VIP)]);
        let observed = Observed::new(&other, &[], TIMES);
        let found = peers(&observed, &stream(transport), third, 2);
        assert_eq!(found_in(&found), [(Violation, "1 of 2: 1 10.96.0.2:80")]);
    }
}

#[rstest]
#[case::whatever_becomes_of_a_socket_it_has_its_port(
    vec![answered(VIP), failed(Stage::Connect, "EPERM")], &[],
    &[(Violation, "2 of 2: 1 EPERM from connect, 1 answered by b1/UDP/8080")]
)]
#[case::a_port_that_is_kept(
    vec![failed(Stage::Socket, "EADDRINUSE"), failed(Stage::Socket, "EPERM")],
    &[(Violation, "2 of 2: 1 EADDRINUSE from socket or bind, 1 EPERM from socket or bind")], &[]
)]
#[case::no_socket_for_another_reason_says_nothing(
    vec![answered(VIP), failed(Stage::Socket, "EMFILE")],
    &[(Undecided, "only 1 of the 2 attempts that decide, and 1 EMFILE from socket or bind")],
    &[(Violation, "1 of 2: 1 answered by b1/UDP/8080"),
      (Undecided, "only 1 of the 2 attempts that decide, and 1 EMFILE from socket or bind")]
)]
#[case::nobody_asked(
    vec![],
    &[(Undecided, "only 0 of the 2 attempts that decide, and no attempt")],
    &[(Undecided, "only 0 of the 2 attempts that decide, and no attempt")]
)]
fn ports_of(
    #[case] outcomes: Vec<Outcome>,
    #[case] if_free: &[(Weight, &str)],
    #[case] if_kept: &[(Weight, &str)],
) {
    let attempts = attempts(Udp, outcomes);
    let observed = Observed::new(&attempts, &[], TIMES);
    let stream = stream(Udp);
    assert_eq!(found_in(&bound(&observed, &stream, Port::Free, 2)), if_free);
    assert_eq!(found_in(&bound(&observed, &stream, Port::Kept, 2)), if_kept);
}
