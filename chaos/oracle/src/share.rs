//! How answers are shared among backends, for claims that state a smallest share.

use std::collections::BTreeMap;

use crate::{
    check::Stream,
    finding::{Finding, Weight},
    history::{Attempt, Outcome},
};

/// Each of these identities gave at least this fraction (0 to 1) of the answers to a stream. Fewer than `at_least`
/// answers decide nothing.
#[must_use]
pub fn shares<'a>(
    attempts: &[Attempt],
    stream: &Stream,
    identities: impl IntoIterator<Item = &'a String>,
    least: f64,
    at_least: usize,
) -> Option<Finding> {
    let of_stream = attempts.iter().filter(|attempt| {
        attempt.client == stream.client
            && attempt.target == stream.target
            && attempt.transport == stream.transport
    });
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for attempt in of_stream {
        if let Outcome::Answered { answer, .. } = &attempt.outcome {
            *counts.entry(&answer.identity).or_default() += 1;
        }
    }
    let total: usize = counts.values().sum();
    let finding = |weight, found| Finding {
        weight,
        subject: stream.to_string(),
        expected: format!("at least {:.0} % of the answers from each backend", least * 100.0),
        found,
        first: Vec::new(),
        counted: None,
    };
    if total < at_least {
        let found = format!("only {total} of the {at_least} answers that decide");
        return Some(finding(Weight::Undecided, found));
    }
    let few: Vec<String> = identities
        .into_iter()
        .map(|identity| {
            (
                identity,
                counts.get(identity.as_str()).copied().unwrap_or_default(),
            )
        })
        .filter(|(_, count)| (*count as f64) < least * total as f64)
        .map(|(identity, count)| format!("{count} of {total} from {identity}"))
        .collect();
    (!few.is_empty()).then(|| finding(Weight::Violation, few.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Stage, Transport};

    const FRONTEND: &str = "10.96.0.1:80";

    fn stream() -> Stream {
        Stream {
            client: "c".to_owned(),
            target: "t".to_owned(),
            transport: Transport::Tcp,
        }
    }

    fn attempt(target: &str, identity: Option<&str>) -> Attempt {
        let outcome = match identity {
            None => Outcome::Timeout {
                stage: Stage::Handshake,
            },
            Some(identity) => Outcome::Answered {
                answer: Answer {
                    identity: identity.to_owned(),
                    source: "10.0.0.1:1".parse().unwrap(),
                    destination: "10.0.0.2:80".parse().unwrap(),
                    nonce: "n".to_owned(),
                    pod: None,
                },
                peer: FRONTEND.parse().unwrap(),
            },
        };
        Attempt {
            start_us: 0,
            end_us: 1,
            client: "c".to_owned(),
            target: target.to_owned(),
            transport: Transport::Tcp,
            destination: FRONTEND.parse().unwrap(),
            local: None,
            nonce: "n".to_owned(),
            exchange: None,
            fragments: None,
            outcome,
        }
    }

    /// Answers of a and b, and others that do not count.
    fn answers(a: usize, b: usize) -> Vec<Attempt> {
        let mut attempts = vec![attempt("t", None), attempt("elsewhere", Some("a"))];
        attempts.extend((0..a).map(|_| attempt("t", Some("a"))));
        attempts.extend((0..b).map(|_| attempt("t", Some("b"))));
        attempts
    }

    fn judged(a: usize, b: usize) -> Option<Finding> {
        let identities = ["a".to_owned(), "b".to_owned()];
        shares(&answers(a, b), &stream(), &identities, 0.25, 100)
    }

    #[test]
    fn each_has_its_share_or_more() {
        assert_eq!(judged(75, 25), None);
        assert_eq!(
            judged(25, 175).map(|finding| finding.found),
            Some("25 of 200 from a".to_owned())
        );
        let nothing = judged(200, 0).expect("b has none");
        assert_eq!(
            (nothing.weight, nothing.found.as_str()),
            (Weight::Violation, "0 of 200 from b")
        );
    }

    #[test]
    fn too_few_answers_decide_nothing() {
        let finding = judged(50, 49).expect("99 are too few");
        assert_eq!(finding.weight, Weight::Undecided);
        assert_eq!(finding.found, "only 99 of the 100 answers that decide");
    }
}
