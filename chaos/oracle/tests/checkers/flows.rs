//! Established flows as tables: a sentence, the exchanges, what is found.

use std::time::Duration;

use oracle::{
    breakage::Ending,
    check::{Observed, Stream, Times},
    counted::What,
    finding::{Finding, Weight},
    flow::{self, Flows},
    history::{Answer, Attempt, Exchange, Outcome, Served, Stage, Transport},
};
use rstest::rstest;

const TIMES: Times = Times {
    refuse: Duration::from_secs(1),
    probe: Duration::from_secs(3),
};
/// Exchanges of each flow in these tests.
const MANY: u32 = 150;

/// How an exchange ends.
#[derive(Clone, Copy)]
enum Is {
    By(&'static str),
    Reset,
    Lost,
    /// Without an answer, and its client ran too late.
    Unwatched,
}

fn answer(flow: u32, sequence: u32, identity: &str) -> Answer {
    Answer {
        identity: identity.into(),
        source: "10.1.0.9:40000".parse().unwrap(),
        destination: "10.1.0.2:8080".parse().unwrap(),
        nonce: format!("{flow}-{sequence}"),
        pod: None,
    }
}

fn exchange(transport: Transport, flow: u32, sequence: u32, is: Is) -> Attempt {
    let vip = "10.96.0.10:80".parse().unwrap();
    let (milliseconds, outcome) = match is {
        Is::By(identity) => {
            let answer = answer(flow, sequence, identity);
            (1, Outcome::Answered { answer, peer: vip })
        }
        Is::Reset => {
            let (stage, errno) = (Stage::Receive, "ECONNRESET".to_owned());
            (1, Outcome::Failed { stage, errno })
        }
        Is::Lost | Is::Unwatched => {
            let stage = Stage::Receive;
            let late = if matches!(is, Is::Lost) { 3001 } else { 9000 };
            (late, Outcome::Timeout { stage })
        }
    };
    Attempt {
        start_us: 1_000_000,
        end_us: 1_000_000 + milliseconds * 1000,
        client: "pod@node-1".into(),
        target: "web".into(),
        transport,
        destination: vip,
        local: None,
        nonce: format!("{flow}-{sequence}"),
        exchange: Some(Exchange {
            flow,
            socket: 0,
            sequence,
        }),
        fragments: None,
        outcome,
    }
}

/// Two flows answered by b1, where the first exchanges of flow 0 are something else.
fn history(transport: Transport, first: &[Is]) -> Vec<Attempt> {
    let at = |flow: u32, sequence: u32| match first.get(sequence as usize) {
        Some(is) if flow == 0 => *is,
        _ => Is::By("b1/TCP/8080"),
    };
    (0..2)
        .flat_map(|flow| {
            (0..MANY).map(move |sequence| exchange(transport, flow, sequence, at(flow, sequence)))
        })
        .collect()
}

fn judge(attempts: &[Attempt], logs: &[Served], transport: Transport) -> Vec<Finding> {
    let expected = Flows {
        stream: Stream {
            client: "pod@node-1".into(),
            target: "web".into(),
            transport,
        },
        flows: 2,
        at_least: 100,
        identities: ["b1/TCP/8080".to_owned(), "b2/TCP/8080".to_owned()].into(),
        lost_of: 100,
    };
    flow::flows(&Observed::new(attempts, logs, TIMES), &expected)
}

/// The weights and texts of findings.
fn found(attempts: &[Attempt], transport: Transport) -> Vec<(Weight, String)> {
    let findings = judge(attempts, &[], transport).into_iter();
    findings.map(|finding| (finding.weight, finding.found)).collect()
}

#[rstest]
#[case::a_connection(Transport::Tcp)]
#[case::a_connected_socket(Transport::UdpConnected)]
#[case::a_socket(Transport::Udp)]
fn flows_that_go_on_are_as_expected(#[case] transport: Transport) {
    assert_eq!(found(&history(transport, &[]), transport), []);
    let two_of_300 = history(transport, &[Is::By("b1/TCP/8080"), Is::Lost, Is::Lost]);
    assert_eq!(found(&two_of_300, transport), [], "fewer than 1 of 100");
}

#[test]
fn an_end_is_found() {
    let attempts = history(Transport::Tcp, &[Is::By("b1/TCP/8080"), Is::Reset]);
    let text = "open sockets ended: 1 ECONNRESET from receive".to_owned();
    assert_eq!(found(&attempts, Transport::Tcp), [(Weight::Violation, text)]);
}

#[test]
fn a_flow_that_ends_is_counted_once_by_its_first_end() {
    let attempts = history(
        Transport::Tcp,
        &[Is::By("b1/TCP/8080"), Is::Reset, Is::Lost, Is::Reset],
    );
    let findings = judge(&attempts, &[], Transport::Tcp);
    let counted = findings[0].counted.as_ref().unwrap();
    assert_eq!((&counted.what, counted.outside, counted.of), (&What::Flows, 1, 2));
    let errno = "ECONNRESET".to_owned();
    assert_eq!(counted.endings, [(Ending::Ended { errno }, 1)]);
}

#[test]
fn one_lost_exchange_of_fewer_than_a_hundred_is_no_rate_and_two_are() {
    let short = |first: &[Is]| -> Vec<Attempt> {
        let all = history(Transport::Udp, first).into_iter();
        all.filter(|attempt| attempt.exchange.is_some_and(|exchange| exchange.sequence < 40))
            .collect()
    };
    let lost = |attempts: &[Attempt]| {
        let found = found(attempts, Transport::Udp).into_iter();
        found
            .filter(|(weight, _)| *weight == Weight::Violation)
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
    };
    let one = short(&[Is::By("b1/TCP/8080"), Is::Lost]);
    assert_eq!(lost(&one), [""; 0]);
    let two = short(&[Is::By("b1/TCP/8080"), Is::Lost, Is::Lost]);
    assert_eq!(lost(&two), ["2 of 80 exchanges without an answer"]);
}

#[test]
fn one_lost_exchange_of_a_hundred_is_too_many() {
    let attempts = history(Transport::Udp, &[Is::Lost; 3]);
    let text = "3 of 300 exchanges without an answer".to_owned();
    assert_eq!(found(&attempts, Transport::Udp), [(Weight::Violation, text)]);
}

#[rstest]
#[case::in_the_set("b2/TCP/8080", Transport::Tcp, true)]
#[case::in_the_set("b2/TCP/8080", Transport::UdpConnected, true)]
#[case::of_a_socket_that_has_none("b2/TCP/8080", Transport::Udp, false)]
#[case::of_no_permitted_backend("b3/TCP/8080", Transport::Udp, true)]
fn another_backend_is_found(#[case] other: &'static str, #[case] transport: Transport, #[case] wrong: bool) {
    let attempts = history(transport, &[Is::By("b1/TCP/8080"), Is::By(other)]);
    let weights: Vec<Weight> = found(&attempts, transport)
        .iter()
        .map(|(weight, _)| *weight)
        .collect();
    assert_eq!(weights, if wrong { vec![Weight::Violation] } else { vec![] });
    assert_eq!(
        flow::wandering(&attempts),
        usize::from(transport == Transport::Udp)
    );
}

#[test]
fn late_clients_and_missing_exchanges_decide_nothing() {
    let unwatched = history(Transport::Udp, &[Is::Unwatched; 40]);
    let weights: Vec<Weight> = judge(&unwatched, &[], Transport::Udp)
        .iter()
        .map(|finding| finding.weight)
        .collect();
    assert_eq!(weights, [Weight::Undecided]);
    let few = history(Transport::Udp, &[Is::Unwatched; 2]);
    assert_eq!(found(&few, Transport::Udp), [], "whatever became of them");
    let text = "only 0 of them have the 100 exchanges that decide".to_owned();
    assert_eq!(found(&[], Transport::Udp), [(Weight::Undecided, text)]);
}

#[test]
fn a_backend_that_is_behind_has_lost_nothing() {
    let attempts = history(Transport::Udp, &[Is::Lost; 3]);
    let late = |sequence| Served {
        time_us: 9_000_000,
        answer: answer(0, sequence, "b1/TCP/8080"),
    };
    let logs: Vec<Served> = (0..3).map(late).collect();
    let weights = |logs: &[Served]| -> Vec<Weight> {
        let findings = judge(&attempts, logs, Transport::Udp);
        findings.iter().map(|finding| finding.weight).collect()
    };
    assert_eq!(
        weights(&logs),
        [Weight::Undecided],
        "as many of them decide nothing"
    );
    assert_eq!(
        weights(&[]),
        [Weight::Violation],
        "a backend that never read them has"
    );
    let few = history(Transport::Udp, &[Is::Lost; 2]);
    assert_eq!(judge(&few, &logs, Transport::Udp), []);
}

/// Exchanges of flow 0, ten of them, that begin one microsecond after the other.
fn one_after_the_other(is: impl Fn(u32) -> (u32, Is)) -> Vec<Attempt> {
    let at = |sequence| {
        let (socket, is) = is(sequence);
        let mut attempt = exchange(Transport::Tcp, 0, sequence, is);
        attempt.start_us = u64::from(sequence);
        attempt.exchange.as_mut().unwrap().socket = socket;
        attempt
    };
    (0..10).map(at).collect()
}

#[rstest]
#[case::all_are_answered(|_| (0, Is::By("b")), 1)]
#[case::one_is_lost(|sequence| (0, if sequence == 5 { Is::Lost } else { Is::By("b") }), 0)]
#[case::one_is_lost_before(|sequence| (0, if sequence == 1 { Is::Lost } else { Is::By("b") }), 1)]
#[case::one_is_lost_after(|sequence| (0, if sequence == 8 { Is::Lost } else { Is::By("b") }), 1)]
#[case::another_socket(|sequence| (u32::from(sequence > 5), Is::By("b")), 0)]
fn a_flow_is_healthy_in_a_time_in_which_one_socket_has_all_its_answers(
    #[case] is: fn(u32) -> (u32, Is),
    #[case] healthy: usize,
) {
    let attempts = one_after_the_other(is);
    assert_eq!(flow::healthy(&attempts, 2, 8, 6).len(), healthy);
    assert!(
        flow::healthy(&attempts, 2, 8, 7).is_empty(),
        "six have begun in it"
    );
}

#[test]
fn the_last_exchanges_of_each_flow_are_by_their_numbers() {
    let mut attempts = vec![
        exchange(Transport::Udp, 0, 2, Is::By("b1/UDP/8080")),
        exchange(Transport::Udp, 1, 0, Is::By("b1/UDP/8080")),
        exchange(Transport::Udp, 0, 0, Is::By("b1/UDP/8080")),
        exchange(Transport::Udp, 0, 1, Is::By("b1/UDP/8080")),
    ];
    // Of no flow.
    attempts.push(Attempt {
        exchange: None,
        ..attempts[0].clone()
    });
    let numbers: Vec<(u32, u32)> = flow::last(&attempts, 2)
        .iter()
        .filter_map(|one| one.exchange)
        .map(|exchange| (exchange.flow, exchange.sequence))
        .collect();
    assert_eq!(numbers, [(0, 1), (0, 2), (1, 0)]);
}
