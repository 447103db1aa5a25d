//! Whether sockets can bind their source port.

use crate::{
    check::{Observed, Stream, shown},
    finding::{Finding, Weight},
    history::{Attempt, Outcome, Stage},
    observations,
};

/// Errors of `bind` for a port that a program keeps: in use, or not permitted.
pub const KEPT: [&str; 3] = ["EADDRINUSE", "EPERM", "EACCES"];

/// Whether the source port of a stream is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Every socket could bind it, whatever happened afterwards.
    Free,
    /// No socket could.
    Kept,
}

/// Attempts that are not as expected; fewer than `at_least` decide nothing.
#[must_use]
pub fn bound(observed: &Observed<'_>, stream: &Stream, port: Port, at_least: usize) -> Vec<Finding> {
    let seen = observed.of(stream);
    let expected = match port {
        Port::Free => "every socket bound to the port",
        Port::Kept => "every socket refused the port",
    };
    let finding = |weight, found: String, first: &[&Attempt]| Finding {
        weight,
        subject: stream.to_string(),
        expected: expected.to_owned(),
        found,
        first: shown(first),
        counted: None,
    };
    let (unknown, known): (Vec<&Attempt>, Vec<&Attempt>) =
        seen.iter().partition(|attempt| met(&attempt.outcome).is_none());
    let outside: Vec<&Attempt> = known
        .into_iter()
        .filter(|attempt| met(&attempt.outcome) != Some(port))
        .collect();
    let mut findings = Vec::new();
    if !outside.is_empty() {
        let how = observations::line(&observations::outcomes(outside.iter().copied()));
        let found = format!("{} of {}: {how}", outside.len(), seen.len());
        findings.push(finding(Weight::Violation, found, &outside));
    }
    let decided = seen.len() - unknown.len();
    if decided < at_least {
        let how = observations::line(&observations::outcomes(unknown.iter().copied()));
        let found = format!("only {decided} of the {at_least} attempts that decide, and {how}");
        findings.push(finding(Weight::Undecided, found, &unknown));
    }
    findings
}

/// What an attempt shows of its port; `None` if it got no socket for another reason.
fn met(outcome: &Outcome) -> Option<Port> {
    match outcome {
        Outcome::Failed {
            stage: Stage::Socket,
            errno,
        } => KEPT.contains(&errno.as_str()).then_some(Port::Kept),
        Outcome::Timeout { stage: Stage::Socket } => None,
        _ => Some(Port::Free),
    }
}
