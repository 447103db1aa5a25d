//! The result of a checker: expected, found, and the first attempts that show it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    counted::Counted,
    history::{Attempt, Outcome, Stage, Transport},
};

/// How many offending attempts a finding carries.
pub const SHOWN: usize = 5;

/// Effect of a finding on the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// At least one probe ended outside the permitted set.
    Violation,
    /// The history cannot decide: probes are missing, too few, or failed in the client itself.
    Undecided,
}

/// One thing that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its effect.
    pub weight: Weight,
    /// Which probes: client, target, transport.
    pub subject: String,
    /// What is permitted.
    pub expected: String,
    /// What happened, counted.
    pub found: String,
    /// The first offending attempts, at most [`SHOWN`].
    pub first: Vec<Attempt>,
    /// The same in parts, where something was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: expected {}, found {}",
            self.subject, self.expected, self.found
        )?;
        for attempt in &self.first {
            write!(f, "\n    {}", describe(attempt))?;
        }
        Ok(())
    }
}

/// An attempt in one line.
#[must_use]
pub fn describe(attempt: &Attempt) -> String {
    let seconds = attempt.start_us as f64 / 1e6;
    let took = attempt.end_us.saturating_sub(attempt.start_us) as f64 / 1e3;
    let local = attempt
        .local
        .map_or_else(|| "?".to_owned(), |local| local.to_string());
    format!(
        "at {seconds:.6} {} {local} → {} {}: {} after {took:.1} ms (nonce {})",
        attempt.client,
        attempt.destination,
        transport(attempt.transport),
        outcome(&attempt.outcome),
        attempt.nonce,
    )
}

/// An outcome in words. Equal outcomes have equal words, by which they are counted.
#[must_use]
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answered { answer, .. } => format!("answered by {}", answer.identity),
        Outcome::Failed { stage: at, errno } => format!("{errno} from {}", stage(*at)),
        Outcome::Timeout { stage: at } => format!("nothing, waiting in {}", stage(*at)),
        Outcome::Garbled { said } => format!("answered by no probe server: {said:?}"),
    }
}

/// The transport's usual name.
#[must_use]
pub fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "TCP",
        Transport::Sctp => "SCTP",
        Transport::Http => "HTTP",
        Transport::Tls => "TLS",
        Transport::Udp => "UDP",
        Transport::UdpConnected => "UDP (connected)",
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Socket => "socket or bind",
        Stage::Connect => "connect",
        Stage::Handshake => "the handshake",
        Stage::Tls => "the TLS handshake",
        Stage::Send => "send",
        Stage::Receive => "receive",
    }
}
