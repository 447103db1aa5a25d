//! How answers are shared among backends, for claims that state a smallest share, or an even one.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    check::Stream,
    finding::{self, Finding, Weight},
    history::{Attempt, Outcome, Transport},
};

/// Of its fair share, a backend gets no less, and no more.
const EVEN: [f64; 2] = [0.5, 2.0];

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
    let counts = counts(of_stream);
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

/// Each of these identities gave between half and twice its fair share of the answers to a target, of all clients together.
/// Fewer than `at_least` answers decide nothing.
#[must_use]
pub fn spread(
    attempts: &[Attempt],
    (target, transport): (&str, Transport),
    identities: &BTreeSet<String>,
    at_least: usize,
) -> Option<Finding> {
    let of_target = attempts.iter();
    let counts =
        counts(of_target.filter(|attempt| attempt.target == target && attempt.transport == transport));
    let total: usize = counts.values().sum();
    let finding = |weight, found| Finding {
        weight,
        subject: format!("{target} {} from all clients", finding::transport(transport)),
        expected: format!(
            "between half and twice a fair share of the answers from each of {} backends",
            identities.len()
        ),
        found,
        first: Vec::new(),
        counted: None,
    };
    if total < at_least {
        let found = format!("only {total} of the {at_least} answers that decide");
        return Some(finding(Weight::Undecided, found));
    }
    let fair = total as f64 / identities.len().max(1) as f64;
    let [least, most] = EVEN.map(|share| share * fair);
    let count = |identity: &String| counts.get(identity.as_str()).copied().unwrap_or_default();
    let uneven: Vec<String> = identities
        .iter()
        .filter(|identity| !(least..=most).contains(&(count(identity) as f64)))
        .map(|identity| format!("{} of {total} from {identity}", count(identity)))
        .collect();
    (!uneven.is_empty()).then(|| finding(Weight::Violation, uneven.join(", ")))
}

/// Answers of each identity.
fn counts<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> BTreeMap<&'a str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for attempt in attempts {
        if let Outcome::Answered { answer, .. } = &attempt.outcome {
            *counts.entry(&answer.identity).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Stage};

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

    /// Of two backends, with a second client that has asked `b` so often.
    fn spread_of(a: usize, b: usize, other: usize) -> Option<Finding> {
        let identities = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let mut attempts = answers(a, b);
        attempts.extend((0..other).map(|_| Attempt {
            client: "another".to_owned(),
            ..attempt("t", Some("b"))
        }));
        spread(&attempts, ("t", Transport::Tcp), &identities, 100)
    }

    #[test]
    fn an_even_spread_is_of_all_clients_together() {
        assert_eq!(spread_of(150, 50, 0), None);
        assert_eq!(spread_of(150, 0, 50), None, "each client may prefer one");
        assert_eq!(
            spread_of(151, 49, 0).map(|finding| finding.found),
            Some("49 of 200 from b".to_owned())
        );
        let found = |finding: Option<Finding>| finding.map(|finding| (finding.weight, finding.found));
        assert_eq!(
            found(spread_of(200, 0, 0)),
            Some((Weight::Violation, "0 of 200 from b".to_owned()))
        );
        assert_eq!(
            found(spread_of(50, 49, 0)),
            Some((
                Weight::Undecided,
                "only 99 of the 100 answers that decide".to_owned()
            ))
        );
        assert_eq!(
            spread_of(200, 50, 50).map(|finding| finding.subject),
            None,
            "twice the share of the other is even"
        );
    }

    #[test]
    fn more_than_twice_a_fair_share_is_uneven() {
        let identities: BTreeSet<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let mut attempts = answers(510, 166);
        attempts.extend((0..162).map(|_| attempt("t", Some("c"))));
        attempts.extend((0..162).map(|_| attempt("t", Some("d"))));
        let finding = spread(&attempts, ("t", Transport::Tcp), &identities, 100).expect("a has more");
        assert_eq!(finding.found, "510 of 1000 from a");
    }

    #[test]
    fn too_few_answers_decide_nothing() {
        let finding = judged(50, 49).expect("99 are too few");
        assert_eq!(finding.weight, Weight::Undecided);
        assert_eq!(finding.found, "only 99 of the 100 answers that decide");
    }
}
