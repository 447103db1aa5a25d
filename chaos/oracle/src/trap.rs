//! Traps: addresses that are no longer entitled to traffic, kept alive and logging.

use std::collections::HashSet;

use crate::{
    breakage::Ending,
    check::shown,
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Outcome, Served},
};

/// The trap gets none of these attempts: none of their nonces is in its log, none is answered by it.
#[must_use]
pub fn trap_untouched(attempts: &[Attempt], trap: &str, trap_log: &[Served]) -> Option<Finding> {
    let delivered: HashSet<&str> = trap_log.iter().map(|line| line.answer.nonce.as_str()).collect();
    let hit: Vec<&Attempt> = attempts
        .iter()
        .filter(|attempt| delivered.contains(attempt.nonce.as_str()) || answered_by(attempt, trap))
        .collect();
    if hit.is_empty() {
        return None;
    }
    let all: Vec<&Attempt> = attempts.iter().collect();
    let what = What::Trap {
        server: trap.to_owned(),
    };
    Some(Finding {
        weight: Weight::Violation,
        subject: format!("the trap {trap}"),
        expected: format!("0 of {} probes", attempts.len()),
        found: format!("{} of {}", hit.len(), attempts.len()),
        first: shown(&hit),
        counted: Counted::attempts(what, &hit, &all, Ending::of),
    })
}

/// Whether a backend of this name answered, on whatever port.
fn answered_by(attempt: &Attempt, name: &str) -> bool {
    match &attempt.outcome {
        Outcome::Answered { answer, .. } => answer.identity.split('/').next() == Some(name),
        _ => false,
    }
}
