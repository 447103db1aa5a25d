//! Classes of outcomes, whatever was expected.

use std::{collections::BTreeSet, time::Duration};

use crate::history::{Answer, Attempt, Outcome, Stage};

/// What counts as a refusal, by packet or from the socket call.
pub const REFUSALS: [&str; 4] = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EPERM"];

/// Whether an outcome is a refusal, whenever it came.
#[must_use]
pub fn is_refusal(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { stage, errno }
        if *stage != Stage::Socket && REFUSALS.contains(&errno.as_str()))
}

/// The certificate of the answer is valid for a name.
pub(crate) fn is_certified(attempt: &Attempt, name: &str) -> bool {
    matches!(&attempt.outcome, Outcome::Answered { answer, .. }
        if faithful(answer, attempt)
            && answer.identity.split(['/', ',']).any(|one| one == name))
}

/// The connection was established, and ended before the answer, by a RST or a FIN.
#[must_use]
pub fn is_cut(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed { stage, .. } => matches!(stage, Stage::Tls | Stage::Send | Stage::Receive),
        Outcome::Garbled { said } => said.is_empty(),
        Outcome::Answered { .. } | Outcome::Timeout { .. } => false,
    }
}

/// All were under way at one moment, as when a stopping server ends them.
pub(crate) fn were_there_together(attempts: &[&Attempt]) -> bool {
    let last_begin = attempts.iter().map(|attempt| attempt.start_us).max();
    let first_end = attempts.iter().map(|attempt| attempt.end_us).min();
    last_begin <= first_end
}

/// The answer is not a backend's of the suite, but for example a gateway's at a former Service address: it accepted a
/// connection and ended it, or sent something else. A refusal is no answer: UDP sockets get it from send or receive.
#[must_use]
pub fn is_foreign(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Garbled { .. }) || (is_cut(outcome) && !is_refusal(outcome))
}

/// No backend has answered: it was refused, whenever, or silent, or something else has answered.
pub(crate) fn is_unanswered(outcome: &Outcome) -> bool {
    is_refusal(outcome) || is_silent(outcome) || is_foreign(outcome)
}

pub(crate) fn is_answered_by(attempt: &Attempt, identities: &BTreeSet<String>) -> bool {
    matches!(&attempt.outcome, Outcome::Answered { answer, .. }
        if identities.contains(&answer.identity) && faithful(answer, attempt))
}

/// The answer is to this attempt, and the destination port that the backend saw is the one it listens on.
pub(crate) fn faithful(answer: &Answer, attempt: &Attempt) -> bool {
    let port = answer
        .identity
        .rsplit('/')
        .next()
        .and_then(|port| port.parse().ok());
    answer.nonce == attempt.nonce && port == Some(answer.destination.port())
}

pub(crate) fn is_silent(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Timeout { stage } if *stage != Stage::Socket)
}

pub(crate) fn took(attempt: &Attempt) -> Duration {
    Duration::from_micros(attempt.end_us.saturating_sub(attempt.start_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_connection_is_an_answer_and_a_refused_datagram_is_none() {
        let failed = |stage, errno: &str| Outcome::Failed {
            stage,
            errno: errno.to_owned(),
        };
        assert!(is_foreign(&failed(Stage::Receive, "ECONNRESET")));
        for stage in [Stage::Send, Stage::Receive] {
            assert!(!is_foreign(&failed(stage, "ECONNREFUSED")), "{stage:?}");
        }
    }
}
