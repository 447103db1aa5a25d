//! Services that have to wait for another round, so that one round does not hold up what comes in the meantime.

use std::{collections::BTreeSet, time::Instant};

use crate::names::ObjectId;

/// How many frontends that are there are given other values in one round: between replacing two, every program that
/// was running must have ended, for which the kernel takes some 10 ms. Hardly ever is it more than one, until a new
/// agent has another way of choosing backends, or many Services get affinity at once.
pub const REPLACED_LIMIT: usize = 16;

/// Who waits, and how much this round may still do. Bounded by the number of Services.
#[derive(Debug, Default)]
pub(super) struct Postponed {
    services: BTreeSet<ObjectId>,
    /// How many turns were taken in this round.
    taken: usize,
    /// When it began.
    round: Option<Instant>,
}

impl Postponed {
    /// A round begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.taken = 0;
        self.round = Some(now);
    }

    /// Whether one more frontend may be replaced in this round.
    pub(super) fn take_turn(&mut self) -> bool {
        let is_free = self.taken < REPLACED_LIMIT;
        self.taken += usize::from(is_free);
        is_free
    }

    /// A Service is not written in full.
    pub(super) fn add(&mut self, service: ObjectId) {
        self.services.insert(service);
    }

    /// A Service is about to be written.
    pub(super) fn remove(&mut self, service: ObjectId) {
        self.services.remove(&service);
    }

    /// Whether a Service waits.
    pub(super) fn has(&self, service: ObjectId) -> bool {
        self.services.contains(&service)
    }

    /// Who is to be written in the next round: each has at least one turn to take.
    pub(super) fn next(&self) -> impl Iterator<Item = ObjectId> {
        self.services.iter().copied().take(REPLACED_LIMIT)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.services.len()
    }

    /// When the next round is to begin: at once, after what has come in the meantime.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.round.filter(|_| !self.services.is_empty())
    }
}
