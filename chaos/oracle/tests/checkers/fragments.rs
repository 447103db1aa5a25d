//! Fragmented datagrams as tables: a sentence, the outcomes of exchanges, what is found.

use std::{collections::BTreeSet, time::Duration};

use oracle::{
    check::{Observed, Stream, Times},
    finding::Weight,
    fragments::{Datagrams, datagrams, translated_at_sockets},
    history::{Answer, Attempt, Fragments, Outcome, Stage, Transport},
};
use rstest::rstest;

const TIMES: Times = Times {
    refuse: Duration::from_secs(1),
    probe: Duration::from_secs(3),
};
const VIP: &str = "10.96.0.2";
const BACKEND: &str = "10.1.0.2";

/// Outcomes of the first of a hundred exchanges.
#[derive(Clone, Copy)]
enum First {
    Answered(usize),
    Lost(usize),
    By(&'static str),
    Garbled,
    TooLarge,
}

fn attempt(number: usize, outcome: Outcome, fragments: Option<Fragments>) -> Attempt {
    Attempt {
        start_us: 1_000_000,
        end_us: 1_001_000,
        client: "c1".into(),
        target: "t".into(),
        transport: Transport::Udp,
        destination: format!("{VIP}:80").parse().unwrap(),
        local: None,
        nonce: format!("n{number}"),
        exchange: None,
        fragments,
        outcome,
    }
}

fn answered(number: usize, identity: &str) -> Outcome {
    Outcome::Answered {
        answer: Answer {
            identity: identity.to_owned(),
            source: "10.1.0.9:40000".parse().unwrap(),
            destination: format!("{BACKEND}:8080").parse().unwrap(),
            nonce: format!("n{number}"),
            pod: None,
        },
        peer: format!("{VIP}:80").parse().unwrap(),
    }
}

fn outcome(first: First, number: usize) -> Outcome {
    let other = answered(number, "b/UDP/8080");
    match first {
        First::Lost(count) if number < count => Outcome::Timeout {
            stage: Stage::Receive,
        },
        First::By(identity) if number == 0 => answered(number, identity),
        First::Garbled if number == 0 => Outcome::Garbled {
            said: "damaged".into(),
        },
        First::TooLarge if number == 0 => Outcome::Failed {
            stage: Stage::Send,
            errno: "EMSGSIZE".into(),
        },
        _ => other,
    }
}

fn addresses(of: &[&str]) -> BTreeSet<std::net::IpAddr> {
    of.iter().map(|one| one.parse().unwrap()).collect()
}

fn seen(sent: &[u16], to: &str, received: usize, from: &[&str]) -> Fragments {
    Fragments {
        sent: sent.to_vec(),
        to: addresses(&[to]),
        received,
        from: addresses(from),
    }
}

fn expected(watched: bool, reordered: bool) -> Datagrams {
    Datagrams {
        stream: Stream {
            client: "c1".into(),
            target: "t".into(),
            transport: Transport::Udp,
        },
        at_least: 100,
        identities: ["b/UDP/8080".to_owned()].into(),
        lost_of: 100,
        watched,
        reordered,
    }
}

fn found(attempts: &[Attempt], expected: &Datagrams) -> Vec<(Weight, String)> {
    let findings = datagrams(&Observed::new(attempts, &[], TIMES), expected);
    findings.into_iter().map(|one| (one.weight, one.found)).collect()
}

use Weight::{Undecided, Violation};

#[rstest]
#[case::all_are_answered(First::Answered(100), &[])]
#[case::one_of_a_hundred_may_be_lost(First::Lost(1), &[])]
#[case::two_may_not(First::Lost(2), &[(Violation, "2 of 100 exchanges without an answer")])]
#[case::another_backend(First::By("c/UDP/8080"), &[(Violation, "of 100 exchanges 1 answered by c/UDP/8080")])]
#[case::what_was_damaged(First::Garbled, &[(Violation, "answered by no probe server")])]
#[case::what_the_own_device_does_not_take(First::TooLarge, &[(Undecided, "only 99 of the 100")])]
#[case::too_few(First::Answered(99), &[(Undecided, "only 99 of the 100")])]
fn exchanges(#[case] first: First, #[case] expected_findings: &[(Weight, &str)]) {
    let count = if let First::Answered(count) = first {
        count
    } else {
        100
    };
    let attempts: Vec<Attempt> = (0..count)
        .map(|number| attempt(number, outcome(first, number), None))
        .collect();
    let found = found(&attempts, &expected(false, false));
    assert_eq!(found.len(), expected_findings.len(), "{found:?}");
    for ((weight, text), (expected, part)) in found.iter().zip(expected_findings) {
        assert!(weight == expected && text.contains(part), "{found:?}");
    }
}

#[rstest]
#[case::from_the_frontend(false, seen(&[0, 1480, 2960], VIP, 3, &[VIP]), None)]
#[case::from_the_backend_where_the_socket_sent_there(false, seen(&[0, 1480, 2960], BACKEND, 3, &[BACKEND]), None)]
#[case::from_the_backend(false, seen(&[0, 1480, 2960], VIP, 3, &[BACKEND]), Some(Violation))]
#[case::later_ones_from_the_backend(false, seen(&[0, 1480, 2960], VIP, 3, &[VIP, BACKEND]), Some(Violation))]
#[case::sent_whole(false, seen(&[], VIP, 3, &[VIP]), Some(Undecided))]
#[case::answered_whole(false, seen(&[0, 1480, 2960], VIP, 0, &[]), Some(Undecided))]
#[case::reordered(true, seen(&[2960, 0, 1480], VIP, 3, &[VIP]), None)]
#[case::in_order_all_the_same(true, seen(&[0, 1480, 2960], VIP, 3, &[VIP]), Some(Undecided))]
fn on_the_wire(#[case] reordered: bool, #[case] fragments: Fragments, #[case] weight: Option<Weight>) {
    let one = |number| {
        attempt(
            number,
            outcome(First::Answered(100), number),
            Some(fragments.clone()),
        )
    };
    let attempts: Vec<Attempt> = (0..100).map(one).collect();
    let found = found(&attempts, &expected(true, reordered));
    let weights: Vec<Weight> = found.iter().map(|(weight, _)| *weight).collect();
    assert_eq!(weights, Vec::from_iter(weight), "{found:?}");
    let elsewhere = if fragments.to == addresses(&[BACKEND]) {
        100
    } else {
        0
    };
    assert_eq!(translated_at_sockets(&attempts), elsewhere);
}

#[test]
fn a_lost_answer_counts_where_the_request_was_seen() {
    let lost = Outcome::Timeout {
        stage: Stage::Receive,
    };
    let with = |fragments: Option<Fragments>| -> Vec<Attempt> {
        (0..100)
            .map(|number| attempt(number, lost.clone(), fragments.clone()))
            .collect()
    };
    let went = with(Some(seen(&[0, 1480], VIP, 0, &[])));
    assert_eq!(found(&went, &expected(true, false))[0].0, Violation);
    for unseen in [None, Some(Fragments::default())] {
        let found = found(&with(unseen), &expected(true, false));
        assert_eq!((found.len(), found[0].0), (1, Undecided));
    }
}
