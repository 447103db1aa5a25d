//! Failed writes, and when they are tried again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::ports::PortRef;
use crate::{maps::MapError, names::ObjectId, plan::PortId};

/// Delay before the first retry of a failed write.
pub const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Longest delay between two retries. Each delay is twice the one before.
pub const RETRY_LIMIT: Duration = Duration::from_secs(5);

/// One failed write.
#[derive(Debug)]
pub(super) struct Failure {
    /// Its service port.
    port: Option<PortId>,
    /// The map's error.
    error: MapError,
}

impl Failure {
    /// Of a service port.
    pub(super) fn of_port(at: &PortRef, error: MapError) -> Self {
        let port = Some(at.port().clone());
        Self { port, error }
    }

    /// Of a Service's addresses, or of removals.
    pub(super) const fn of_no_port(error: MapError) -> Self {
        Self { port: None, error }
    }
}

/// A failure that lasts.
#[derive(Clone, Debug)]
pub struct Trouble<'a> {
    /// The Service that is not written; `None`: entries that are not removed.
    pub service: Option<ObjectId>,
    /// Its port.
    pub port: Option<&'a PortId>,
    /// The map's error.
    pub error: &'a MapError,
    /// How often it was tried.
    pub attempts: u32,
}

/// Failures by Service, and those of removals together: bounded by the number of Services.
#[derive(Debug, Default)]
pub(super) struct Retries {
    services: BTreeMap<ObjectId, Retry>,
    removals: Option<Retry>,
}

#[derive(Debug)]
struct Retry {
    attempts: u32,
    due: Instant,
    failures: Vec<Failure>,
}

impl Retry {
    fn after(before: Option<&Self>, failures: Vec<Failure>, now: Instant) -> Option<Self> {
        if failures.is_empty() {
            return None;
        }
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        // 2^16 times the first delay is beyond the limit; the shift can't overflow.
        let delay = RETRY_FIRST
            .saturating_mul(1 << (attempts - 1).min(16))
            .min(RETRY_LIMIT);
        Some(Self {
            attempts,
            due: now + delay,
            failures,
        })
    }

    fn troubles(&self, service: Option<ObjectId>) -> impl Iterator<Item = Trouble<'_>> {
        self.failures.iter().map(move |Failure { port, error }| Trouble {
            service,
            port: port.as_ref(),
            error,
            attempts: self.attempts,
        })
    }
}

impl Retries {
    /// A Service was written, with these failures.
    pub(super) fn attempted(&mut self, service: ObjectId, failures: Vec<Failure>, now: Instant) {
        match Retry::after(self.services.get(&service), failures, now) {
            Some(retry) => _ = self.services.insert(service, retry),
            None => _ = self.services.remove(&service),
        }
    }

    /// Entries were removed, with these errors, of which the first is kept.
    pub(super) fn removed(&mut self, errors: Vec<MapError>, now: Instant) {
        let first = errors.into_iter().take(1);
        let failures = first.map(Failure::of_no_port).collect();
        self.removals = Retry::after(self.removals.as_ref(), failures, now);
    }

    /// Whether entries could not be removed.
    pub(super) const fn removal_failed(&self) -> bool {
        self.removals.is_some()
    }

    pub(super) fn due(&self, now: Instant) -> Vec<ObjectId> {
        let due = self.services.iter().filter(|(_, retry)| retry.due <= now);
        due.map(|(&service, _)| service).collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.services
            .values()
            .chain(&self.removals)
            .map(|retry| retry.due)
            .min()
    }

    pub(super) fn troubles(&self) -> impl Iterator<Item = Trouble<'_>> {
        let services = self.services.iter();
        let services = services.flat_map(|(&service, retry)| retry.troubles(Some(service)));
        services.chain(self.removals.iter().flat_map(|retry| retry.troubles(None)))
    }

    /// Services with failures.
    pub(super) fn services(&self) -> impl Iterator<Item = ObjectId> {
        self.services.keys().copied()
    }

    /// Failures of one Service.
    pub(super) fn troubles_of(&self, service: ObjectId) -> impl Iterator<Item = Trouble<'_>> {
        let retry = self.services.get(&service).into_iter();
        retry.flat_map(move |retry| retry.troubles(Some(service)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> MapError {
        MapError::Full {
            map: "SLOTS",
            capacity: 1,
        }
    }

    #[test]
    fn delays_double_up_to_the_limit_and_success_forgets_them() {
        let mut retries = Retries::default();
        let now = Instant::now();
        let mut delays = Vec::new();
        for _ in 0..40 {
            retries.removed(vec![failure()], now);
            delays.push(retries.deadline().unwrap() - now);
        }
        assert_eq!(delays[..3], [RETRY_FIRST, RETRY_FIRST * 2, RETRY_FIRST * 4]);
        assert_eq!(delays[39], RETRY_LIMIT);
        retries.removed(Vec::new(), now);
        assert_eq!(retries.deadline(), None);
        assert_eq!(retries.troubles().count(), 0);
    }
}
