//! Health check node ports: what a client of HTTP sees of them.

use std::fmt;

use crate::{
    check::{Observed, Stream, is_refusal, shown},
    finding::{Finding, Weight},
    history::{Attempt, Outcome},
    observations,
};

/// What a health check node port must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Status 200.
    Ok,
    /// Status 503.
    Unavailable,
    /// Any status but 200, a refusal, or nothing.
    NotOk,
    /// A refusal, or nothing.
    Closed,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "HTTP 200",
            Self::Unavailable => "HTTP 503",
            Self::NotOk => "HTTP 503, a refusal or silence",
            Self::Closed => "a refusal or silence",
        })
    }
}

impl Health {
    fn permits(self, outcome: &Outcome) -> bool {
        match (self, status(outcome)) {
            (Self::Ok, found) => found == Some(200),
            (Self::Unavailable, found) => found == Some(503),
            (Self::NotOk, Some(found)) => found != 200,
            (Self::Closed, Some(_)) => false,
            (Self::NotOk | Self::Closed, None) => {
                is_refusal(outcome) || matches!(outcome, Outcome::Timeout { .. })
            }
        }
    }
}

/// The status of an answer. Clients take the body out of an answer with 200 alone, and record others as they came.
#[must_use]
pub fn status(outcome: &Outcome) -> Option<u16> {
    let Outcome::Garbled { said } = outcome else {
        return matches!(outcome, Outcome::Answered { .. }).then_some(200);
    };
    let Some(rest) = said.strip_prefix("HTTP/1.1 ") else {
        return Some(200);
    };
    rest.get(..3)?.parse().ok()
}

/// Attempts of a stream that are not as expected. At least so many decide.
#[must_use]
pub fn health(observed: &Observed<'_>, stream: &Stream, expected: Health, at_least: usize) -> Vec<Finding> {
    let (own, judged): (Vec<&Attempt>, Vec<&Attempt>) = observed.of(stream).iter().partition(|attempt| {
        let may_be_silent = matches!(expected, Health::NotOk | Health::Closed);
        !may_be_silent && observed.is_not_the_datapaths(attempt, None)
    });
    let outside: Vec<&Attempt> = judged
        .iter()
        .copied()
        .filter(|attempt| !expected.permits(&attempt.outcome))
        .collect();
    let finding = |weight, found, first: &[&Attempt]| Finding {
        weight,
        subject: stream.to_string(),
        expected: expected.to_string(),
        found,
        first: shown(first),
        counted: None,
    };
    let mut findings = Vec::new();
    if !outside.is_empty() {
        let of = observations::line(&observations::outcomes(outside.iter().copied()));
        let found = format!("{} of {} outside: {of}", outside.len(), judged.len());
        findings.push(finding(Weight::Violation, found, &outside));
    }
    if judged.len() < at_least {
        let found = format!("only {} of the {at_least} attempts that decide", judged.len());
        findings.push(finding(Weight::Undecided, found, &own));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        check::Times,
        history::{Stage, Transport},
    };

    fn said(text: &str) -> Outcome {
        Outcome::Garbled {
            said: text.to_owned(),
        }
    }

    fn found(outcomes: &[Outcome], took_us: u64, expected: Health) -> Vec<Weight> {
        let attempts: Vec<Attempt> = outcomes
            .iter()
            .map(|outcome| Attempt {
                start_us: 0,
                end_us: took_us,
                client: "outside".to_owned(),
                target: "t".to_owned(),
                transport: Transport::Http,
                destination: "172.30.0.101:30048".parse().unwrap(),
                local: None,
                nonce: String::new(),
                exchange: None,
                fragments: None,
                outcome: outcome.clone(),
            })
            .collect();
        let times = Times {
            refuse: Duration::from_secs(1),
            probe: Duration::from_secs(3),
        };
        let stream = Stream {
            client: "outside".to_owned(),
            target: "t".to_owned(),
            transport: Transport::Http,
        };
        let observed = Observed::new(&attempts, &[], times);
        let findings = health(&observed, &stream, expected, outcomes.len().max(1));
        findings.into_iter().map(|finding| finding.weight).collect()
    }

    #[test]
    fn each_port_shows_what_it_must() {
        let ok = || said(r#"{"localEndpoints": 1}"#);
        let unavailable = || said("HTTP/1.1 503 Service Unavailable\r\n");
        let refused = || Outcome::Failed {
            stage: Stage::Handshake,
            errno: "ECONNREFUSED".to_owned(),
        };
        let silent = || Outcome::Timeout {
            stage: Stage::Handshake,
        };
        let all = [ok(), unavailable(), refused(), silent()];
        for (expected, permitted) in [
            (Health::Ok, [true, false, false, false]),
            (Health::Unavailable, [false, true, false, false]),
            (Health::NotOk, [false, true, true, true]),
            (Health::Closed, [false, false, true, true]),
        ] {
            for (outcome, is_permitted) in all.iter().zip(permitted) {
                let weights = found(&[outcome.clone(), outcome.clone()], 3_000_000, expected);
                let wanted = if is_permitted {
                    vec![]
                } else {
                    vec![Weight::Violation]
                };
                assert_eq!(weights, wanted, "{expected}: {outcome:?}");
            }
        }
        assert_eq!(found(&[ok(), unavailable()], 1, Health::Ok), [Weight::Violation]);
    }

    #[test]
    fn a_client_that_did_not_run_and_attempts_that_are_missing_decide_nothing() {
        let silent = Outcome::Timeout {
            stage: Stage::Handshake,
        };
        assert_eq!(
            found(std::slice::from_ref(&silent), 3_500_000, Health::Ok),
            [Weight::Undecided]
        );
        assert_eq!(found(&[silent], 3_500_000, Health::Closed), []);
        assert_eq!(found(&[], 1, Health::Closed), [Weight::Undecided]);
    }
}
