//! Who is bound to one backend: an unconnected socket, or with session affinity a client, for a while.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    check::{Stream, shown},
    finding::{Finding, Weight},
    history::{Attempt, Outcome},
    observations,
};

/// Every socket of a stream's flows is answered by one backend. At least `sockets` of them with `at_least` answers each
/// decide.
#[must_use]
pub fn sticks(attempts: &[Attempt], stream: &Stream, sockets: usize, at_least: usize) -> Vec<Finding> {
    let mut by_socket: BTreeMap<(u32, u32), Vec<(&Attempt, &str)>> = BTreeMap::new();
    for (attempt, identity) in answered(attempts, stream) {
        if let Some(exchange) = attempt.exchange {
            let answers = by_socket.entry((exchange.flow, exchange.socket)).or_default();
            answers.push((attempt, identity));
        }
    }
    let finding = |weight, found, first: &[&Attempt]| Finding {
        weight,
        subject: format!("{sockets} sockets, {stream}"),
        expected: "the datagrams of one socket answered by one backend".to_owned(),
        found,
        first: shown(first),
        counted: None,
    };
    let mut findings = Vec::new();
    let by_another = |answers: &Vec<(&Attempt, &str)>| {
        let first = answers.first().map(|(_, identity)| *identity);
        answers.iter().any(|(_, identity)| Some(*identity) != first)
    };
    let wandering: Vec<_> = by_socket.values().filter(|answers| by_another(answers)).collect();
    if let Some(worst) = wandering.first() {
        let of_first: Vec<&Attempt> = worst.iter().map(|(attempt, _)| *attempt).collect();
        let found = format!(
            "{} of {} sockets by several, the first of them: {}",
            wandering.len(),
            by_socket.len(),
            observations::line(&observations::outcomes(of_first.iter().copied()))
        );
        findings.push(finding(Weight::Violation, found, &of_first));
    }
    let enough = |answers: &&Vec<(&Attempt, &str)>| answers.len() >= at_least;
    let decided = by_socket.values().filter(enough).count();
    if decided < sockets {
        let found = format!("only {decided} of them have the {at_least} answers that decide");
        findings.push(finding(Weight::Undecided, found, &[]));
    }
    findings
}

/// The first `sockets` sockets of a stream, with a fresh one for each attempt, reach at least `fewest` backends.
#[must_use]
pub fn spreads(attempts: &[Attempt], stream: &Stream, sockets: usize, fewest: usize) -> Option<Finding> {
    let mut answers = answered(attempts, stream);
    answers.sort_by_key(|(attempt, _)| attempt.start_us);
    answers.truncate(sockets);
    let finding = |weight, found| Finding {
        weight,
        subject: stream.to_string(),
        expected: format!("{sockets} fresh sockets answered by at least {fewest} backends"),
        found,
        first: Vec::new(),
        counted: None,
    };
    if answers.len() < sockets {
        let found = format!("only {} answers", answers.len());
        return Some(finding(Weight::Undecided, found));
    }
    let by: BTreeSet<&str> = answers.iter().map(|(_, identity)| *identity).collect();
    let found = || format!("all by {}", by.iter().copied().collect::<Vec<_>>().join(", "));
    (by.len() < fewest).then(|| finding(Weight::Violation, found()))
}

/// All attempts of a stream, whose Service has session affinity, are answered by one backend. At least `at_least` answers decide.
#[must_use]
pub fn is_bound(attempts: &[Attempt], stream: &Stream, at_least: usize) -> Option<Finding> {
    let answers = answered(attempts, stream);
    let all: Vec<&Attempt> = answers.iter().map(|(attempt, _)| *attempt).collect();
    let by: BTreeSet<&str> = answers.iter().map(|(_, identity)| *identity).collect();
    let finding = |weight, found, first: &[&Attempt]| Finding {
        weight,
        subject: stream.to_string(),
        expected: "a client with session affinity answered by one backend".to_owned(),
        found,
        first: shown(first),
        counted: None,
    };
    if by.len() > 1 {
        let found = observations::line(&observations::outcomes(all.iter().copied()));
        return Some(finding(Weight::Violation, found, &all));
    }
    (answers.len() < at_least).then(|| {
        let found = format!("only {} of the {at_least} answers that decide", answers.len());
        finding(Weight::Undecided, found, &[])
    })
}

/// Of rounds between which a client was silent, each answered by one backend of each stream: at least one is answered by another
/// than the one before it. At least `at_least` pauses of all streams together decide.
#[must_use]
pub fn is_released(rounds: &[Vec<Attempt>], streams: &[Stream], at_least: usize) -> Option<Finding> {
    let by = |round: &[Attempt], stream| {
        answered(round, stream)
            .first()
            .map(|(_, identity)| (*identity).to_owned())
    };
    let mut pauses = 0;
    for stream in streams {
        let by: Vec<_> = rounds.iter().map(|round| by(round, stream)).collect();
        for pair in by.windows(2) {
            if let [Some(before), Some(after)] = pair {
                if before != after {
                    return None;
                }
                pauses += 1;
            }
        }
    }
    let (weight, found) = if pauses < at_least {
        (
            Weight::Undecided,
            format!("only {pauses} pauses with answers before and after"),
        )
    } else {
        (
            Weight::Violation,
            format!("the same one after each of {pauses} pauses"),
        )
    };
    Some(Finding {
        weight,
        subject: streams.first().map(ToString::to_string).unwrap_or_default(),
        expected: format!(
            "another backend after at least one of {at_least} pauses longer than the affinity timeout"
        ),
        found,
        first: Vec::new(),
        counted: None,
    })
}

fn answered<'a>(attempts: &'a [Attempt], stream: &Stream) -> Vec<(&'a Attempt, &'a str)> {
    let of_stream = |attempt: &&Attempt| {
        attempt.client == stream.client
            && attempt.target == stream.target
            && attempt.transport == stream.transport
    };
    let answer = |attempt: &'a Attempt| match &attempt.outcome {
        Outcome::Answered { answer, .. } => Some((attempt, answer.identity.as_str())),
        _ => None,
    };
    attempts.iter().filter(of_stream).filter_map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Exchange, Stage, Transport};

    const FRONTEND: &str = "10.96.0.1:80";

    fn stream() -> Stream {
        Stream {
            client: "c".to_owned(),
            target: "t".to_owned(),
            transport: Transport::Udp,
        }
    }

    /// Exchanges of one socket by the backend that answered; `None`: no answer.
    fn exchanges(flow: u32, by: &[Option<&str>]) -> Vec<Attempt> {
        let attempt = |(sequence, identity): (u32, &Option<&str>)| Attempt {
            start_us: u64::from(sequence),
            end_us: u64::from(sequence) + 1,
            client: "c".to_owned(),
            target: "t".to_owned(),
            transport: Transport::Udp,
            destination: FRONTEND.parse().unwrap(),
            local: None,
            nonce: String::new(),
            exchange: Some(Exchange {
                flow,
                socket: 0,
                sequence,
            }),
            fragments: None,
            outcome: match identity {
                None => Outcome::Timeout {
                    stage: Stage::Handshake,
                },
                Some(identity) => Outcome::Answered {
                    answer: Answer {
                        identity: (*identity).to_owned(),
                        source: "10.0.0.1:1".parse().unwrap(),
                        destination: "10.0.0.2:80".parse().unwrap(),
                        nonce: String::new(),
                        pod: None,
                    },
                    peer: FRONTEND.parse().unwrap(),
                },
            },
        };
        (0..).zip(by).map(attempt).collect()
    }

    #[test]
    fn each_socket_has_one_backend_whichever_others_have() {
        let (a, b) = (exchanges(0, &[Some("a"); 3]), exchanges(1, &[Some("b"); 3]));
        assert_eq!(sticks(&[a, b].concat(), &stream(), 2, 3), []);
        let lost = exchanges(0, &[Some("a"), None, Some("a")]);
        assert_eq!(sticks(&lost, &stream(), 1, 2), []);
        let findings = sticks(&exchanges(0, &[Some("a"), Some("b"), Some("a")]), &stream(), 1, 3);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].weight, Weight::Violation);
        assert!(
            findings[0].found.starts_with("1 of 1 sockets by several"),
            "{findings:?}"
        );
    }

    #[test]
    fn sockets_that_are_missing_or_have_too_few_answers_decide_nothing() {
        let findings = sticks(&exchanges(0, &[Some("a"); 3]), &stream(), 2, 3);
        let found: Vec<_> = findings.iter().map(|one| (one.weight, &*one.found)).collect();
        let expected = "only 1 of them have the 3 answers that decide";
        assert_eq!(found, [(Weight::Undecided, expected)]);
        let other = Stream {
            client: "d".to_owned(),
            ..stream()
        };
        assert_eq!(
            sticks(&exchanges(0, &[Some("a"); 3]), &other, 1, 3)[0].weight,
            Weight::Undecided
        );
    }

    #[test]
    fn fresh_sockets_reach_several_backends() {
        let of = |by: &[Option<&str>], sockets| {
            let finding = spreads(&exchanges(0, by), &stream(), sockets, 2);
            finding.map(|finding| (finding.weight, finding.found))
        };
        assert_eq!(of(&[Some("a"), Some("b"), Some("b")], 3), None);
        let one = (Weight::Violation, "all by a".to_owned());
        assert_eq!(of(&[Some("a"), Some("a"), Some("b")], 2), Some(one));
        let few = (Weight::Undecided, "only 1 answers".to_owned());
        assert_eq!(of(&[Some("a"), None, None], 3), Some(few));
    }

    #[test]
    fn a_bound_client_is_answered_by_one_backend_on_all_connections() {
        let found = |by: &[Option<&str>], at_least| {
            is_bound(&exchanges(0, by), &stream(), at_least).map(|finding| finding.weight)
        };
        assert_eq!(found(&[Some("a"), None, Some("a")], 2), None);
        assert_eq!(
            found(&[Some("a"), Some("a"), Some("b")], 2),
            Some(Weight::Violation)
        );
        assert_eq!(found(&[Some("a"), None], 2), Some(Weight::Undecided));
    }

    #[test]
    fn a_client_that_is_released_meets_another_backend_after_one_of_many_pauses() {
        let rounds = |by: &[Option<&str>]| -> Vec<Vec<Attempt>> {
            by.iter().map(|one| exchanges(0, &[*one, *one])).collect()
        };
        let found = |by: &[Option<&str>], at_least| {
            is_released(&rounds(by), &[stream()], at_least).map(|finding| finding.weight)
        };
        assert_eq!(found(&[Some("a"), Some("a"), Some("b")], 2), None);
        assert_eq!(found(&[Some("a"); 3], 2), Some(Weight::Violation));
        assert_eq!(found(&[Some("a"), None, Some("a")], 1), Some(Weight::Undecided));
        // Each stream has a binding of its own: another backend of another one is none after a pause.
        let other = Stream {
            target: "u".to_owned(),
            ..stream()
        };
        let of_other = |round: Vec<Attempt>| -> Vec<Attempt> {
            let second = exchanges(0, &[Some("b")]).into_iter().map(|attempt| Attempt {
                target: "u".to_owned(),
                ..attempt
            });
            round.iter().cloned().chain(second).collect()
        };
        let both: Vec<_> = rounds(&[Some("a"); 3]).into_iter().map(of_other).collect();
        let finding = is_released(&both, &[stream(), other], 4).unwrap();
        assert_eq!(finding.weight, Weight::Violation);
    }
}
