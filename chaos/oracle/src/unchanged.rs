//! Whether a backend saw the addresses that the client sent: nothing in between has replaced one.

use std::net::SocketAddr;

use crate::{
    check::{Observed, Stream, shown},
    finding::{Finding, Weight},
    history::{Attempt, Outcome},
};

/// Which addresses must arrive as they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The destination.
    Destination,
    /// The destination and the source.
    Both,
}

impl Kept {
    fn expected(self) -> &'static str {
        match self {
            Self::Destination => "the destination as it was dialled",
            Self::Both => "source and destination as they were sent",
        }
    }
}

/// What of a stream arrived changed; fewer than `at_least` answers decide nothing.
#[must_use]
pub fn unchanged(observed: &Observed<'_>, stream: &Stream, kept: Kept, at_least: usize) -> Vec<Finding> {
    let answered: Vec<&Attempt> = observed
        .of(stream)
        .iter()
        .copied()
        .filter(|attempt| matches!(attempt.outcome, Outcome::Answered { .. }))
        .collect();
    let changed: Vec<&Attempt> = answered
        .iter()
        .copied()
        .filter(|attempt| is_changed(attempt, kept))
        .collect();
    let finding = |weight, found: String, first: &[&Attempt]| Finding {
        weight,
        subject: stream.to_string(),
        expected: kept.expected().to_owned(),
        found,
        first: shown(first),
        counted: None,
    };
    let mut findings = Vec::new();
    if let Some(first) = changed.first() {
        let found = format!(
            "{} of {} arrived changed; the first {}",
            changed.len(),
            answered.len(),
            sent_and_seen(first)
        );
        findings.push(finding(Weight::Violation, found, &changed));
    }
    if answered.len() < at_least {
        let found = format!("only {} of the {at_least} answers that decide", answered.len());
        findings.push(finding(Weight::Undecided, found, &[]));
    }
    findings
}

fn is_changed(attempt: &Attempt, kept: Kept) -> bool {
    let Outcome::Answered { answer, .. } = &attempt.outcome else {
        return false;
    };
    let source_kept = kept == Kept::Destination || attempt.local.is_none_or(|own| is_own(own, answer.source));
    answer.destination != attempt.destination || !source_kept
}

/// Whether a source is a socket's own address. An unconnected socket knows its port alone.
fn is_own(own: SocketAddr, source: SocketAddr) -> bool {
    own.port() == source.port() && (own.ip().is_unspecified() || own.ip() == source.ip())
}

fn sent_and_seen(attempt: &Attempt) -> String {
    let (Outcome::Answered { answer, .. }, own) = (&attempt.outcome, attempt.local) else {
        return String::new();
    };
    let own = own.map_or_else(|| "unknown".to_owned(), |own| own.to_string());
    format!(
        "was sent from {own} to {}, and seen from {} to {}",
        attempt.destination, answer.source, answer.destination
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        check::Times,
        history::{Answer, Transport},
    };

    /// Dialled from `own` to 10.0.0.2:80, and seen so.
    fn attempt(own: Option<&str>, source: &str, destination: &str) -> Attempt {
        let dialled: SocketAddr = "10.0.0.2:80".parse().unwrap();
        Attempt {
            start_us: 0,
            end_us: 1,
            client: "c".to_owned(),
            target: "t".to_owned(),
            transport: Transport::Tcp,
            destination: dialled,
            local: own.map(|own| own.parse().unwrap()),
            nonce: "n".to_owned(),
            exchange: None,
            fragments: None,
            outcome: Outcome::Answered {
                answer: Answer {
                    identity: "b/TCP/80".to_owned(),
                    source: source.parse().unwrap(),
                    destination: destination.parse().unwrap(),
                    nonce: "n".to_owned(),
                    pod: None,
                },
                peer: dialled,
            },
        }
    }

    fn judged(attempt: Attempt, kept: Kept) -> Vec<(Weight, String)> {
        let stream = Stream {
            client: "c".to_owned(),
            target: "t".to_owned(),
            transport: Transport::Tcp,
        };
        let times = Times {
            refuse: Duration::from_secs(1),
            probe: Duration::from_secs(3),
        };
        let attempts = [attempt];
        let findings = unchanged(&Observed::new(&attempts, &[], times), &stream, kept, 1);
        findings
            .into_iter()
            .map(|finding| (finding.weight, finding.found))
            .collect()
    }

    #[test]
    fn what_arrives_as_it_was_sent_is_unchanged() {
        for own in [Some("10.0.0.1:4000"), Some("0.0.0.0:4000"), None] {
            let kept = attempt(own, "10.0.0.1:4000", "10.0.0.2:80");
            assert_eq!(judged(kept, Kept::Both), []);
        }
    }

    #[test]
    fn another_destination_or_source_is_a_violation() {
        let translated = attempt(Some("10.0.0.1:4000"), "10.0.0.1:4000", "10.0.0.2:8080");
        for kept in [Kept::Destination, Kept::Both] {
            let (weight, found) = judged(translated.clone(), kept).remove(0);
            assert_eq!(weight, Weight::Violation);
            assert_eq!(
                found,
                "1 of 1 arrived changed; the first was sent from 10.0.0.1:4000 to 10.0.0.2:80, and seen from \
                 10.0.0.1:4000 to 10.0.0.2:8080"
            );
        }
        for (own, source) in [
            ("10.0.0.1:4000", "10.0.0.9:4000"),
            ("0.0.0.0:4000", "10.0.0.1:4001"),
        ] {
            let masqueraded = attempt(Some(own), source, "10.0.0.2:80");
            assert_eq!(judged(masqueraded.clone(), Kept::Both).len(), 1, "{own} {source}");
            assert_eq!(judged(masqueraded, Kept::Destination), []);
        }
    }

    #[test]
    fn without_an_answer_nothing_is_decided() {
        let silent = Attempt {
            outcome: Outcome::Garbled { said: String::new() },
            ..attempt(None, "10.0.0.1:1", "10.0.0.2:80")
        };
        let found = judged(silent, Kept::Both);
        assert_eq!(
            found,
            [(
                Weight::Undecided,
                "only 0 of the 1 answers that decide".to_owned()
            )]
        );
    }
}
