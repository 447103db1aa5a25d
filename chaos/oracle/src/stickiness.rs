//! Unconnected sockets: each has one backend, and several sockets together have more than one.

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
}
