//! Session affinity: a client stays with its backend for as long as that is an endpoint, and nothing disturbs its node.

use std::collections::BTreeMap;

use super::judge::{At, Broken, answered_by};
use crate::history::Attempt;

/// Answers to each client so far, in the order of their ends.
#[derive(Default)]
pub(super) struct Bound<'a> {
    answers: BTreeMap<&'a str, Vec<&'a Attempt>>,
}

impl<'a> Bound<'a> {
    /// Judges an attempt by the last answer before it, and notes its own.
    ///
    /// Binding is judged where it is promised all along, by one frontend to one client: whether it outlives an agent, and what other
    /// frontends, ports and protocols share of it, is left to implementations.
    pub(super) fn judge(&mut self, at: &At<'_, 'a>, ends: &[u64], attempt: &'a Attempt) -> Option<Broken> {
        let now = answered_by(attempt)?;
        let answers = self.answers.entry(&attempt.client).or_default();
        let before = answers.partition_point(|one| one.end_us < attempt.start_us);
        let last = before.checked_sub(1).map(|last| answers[last]);
        answers.push(attempt);
        let last = last?;
        let before = answered_by(last)?;
        let (from, until) = (last.start_us, attempt.end_us);
        let stays = |state: usize| {
            let state = &at.frontend.states[state];
            state.terms.sticks && state.serves.contains(before)
        };
        let is_bound = before != now && !at.window.is_disturbed(from, until);
        (is_bound && at.between(ends, from, until).all(stays)).then_some(Broken::Unbound)
    }
}
