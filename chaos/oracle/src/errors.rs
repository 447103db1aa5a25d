//! Which error attempts failed by, where a claim names one.

use std::collections::BTreeMap;

use crate::{
    breakage::Ending,
    check::{Permitted, Stream, shown},
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Outcome},
    observations::{line, outcomes},
};

/// Every attempt of a stream that failed, failed by this error, such as ECONNREFUSED.
#[must_use]
pub fn failed_by(attempts: &[Attempt], stream: &Stream, expected: &str) -> Option<Finding> {
    let failed = attempts.iter().filter(|attempt| {
        let is_of = (&attempt.client, &attempt.target) == (&stream.client, &stream.target);
        is_of && attempt.transport == stream.transport && matches!(attempt.outcome, Outcome::Failed { .. })
    });
    let all: Vec<&Attempt> = failed.collect();
    let is_other =
        |attempt: &&Attempt| matches!(&attempt.outcome, Outcome::Failed { errno, .. } if errno != expected);
    let others: Vec<&Attempt> = all.iter().copied().filter(is_other).collect();
    if others.is_empty() {
        return None;
    }
    let found: BTreeMap<String, usize> = outcomes(others.iter().copied());
    let what = What::Probes {
        permitted: Permitted::Refuse,
    };
    Some(Finding {
        weight: Weight::Violation,
        subject: stream.to_string(),
        expected: format!("every probe failed by {expected}"),
        found: format!("{} of {} by others: {}", others.len(), all.len(), line(&found)),
        first: shown(&others),
        counted: Counted::attempts(what, &others, &all, Ending::of),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Stage, Transport};

    fn attempt(target: &str, outcome: Outcome) -> Attempt {
        Attempt {
            start_us: 1,
            end_us: 2,
            client: "c".to_owned(),
            target: target.to_owned(),
            transport: Transport::Tcp,
            destination: "10.0.0.1:80".parse().unwrap(),
            local: None,
            nonce: String::new(),
            exchange: None,
            fragments: None,
            outcome,
        }
    }

    #[test]
    fn an_error_that_the_claim_does_not_name_is_a_violation_and_other_endings_are_not_asked_about() {
        let failed = |target: &str, errno: &str| {
            let stage = Stage::Handshake;
            attempt(
                target,
                Outcome::Failed {
                    stage,
                    errno: errno.to_owned(),
                },
            )
        };
        let stream = Stream {
            client: "c".to_owned(),
            target: "t".to_owned(),
            transport: Transport::Tcp,
        };
        let silent = attempt(
            "t",
            Outcome::Timeout {
                stage: Stage::Handshake,
            },
        );
        let good = [
            failed("t", "ECONNREFUSED"),
            failed("other", "EPERM"),
            silent.clone(),
        ];
        assert_eq!(failed_by(&good, &stream, "ECONNREFUSED"), None);
        let bad = [failed("t", "ECONNREFUSED"), failed("t", "EHOSTUNREACH"), silent];
        let finding = failed_by(&bad, &stream, "ECONNREFUSED").unwrap();
        assert_eq!(finding.weight, Weight::Violation);
        assert!(finding.found.starts_with("1 of 2 by others: "), "{finding}");
        assert!(finding.found.contains("EHOSTUNREACH"), "{finding}");
    }
}
