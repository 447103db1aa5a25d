//! Time from an event to the map writes that it causes.

use std::{
    collections::HashMap,
    time::{Instant, SystemTime},
};

use crate::{feed::Change, metrics::Metrics, model::Event, names::ObjectName};

/// How many Services are timed at once; the first ones.
const TIMED: usize = 10_000;

/// Services of which an event came that is not in the maps yet.
#[derive(Debug, Default)]
pub(super) struct Latency {
    since: HashMap<ObjectName, Since>,
}

/// When the first event came, and when the earliest cause of one happened.
#[derive(Clone, Copy, Debug)]
struct Since {
    at: Instant,
    triggered: Option<SystemTime>,
}

impl Latency {
    /// An event that came then is about to be applied.
    pub(super) fn begin(&mut self, change: &Change, at: Instant) {
        let service = match &change.event {
            Event::ServiceApplied(service) => Some(service.name.clone()),
            Event::SliceApplied(slice) => slice.owner(),
            // A deleted object has no write to wait for.
            _ => None,
        };
        let Some(service) = service else { return };
        if self.since.len() >= TIMED && !self.since.contains_key(&service) {
            return;
        }
        let since = self.since.entry(service).or_insert(Since {
            at,
            triggered: change.triggered,
        });
        since.triggered = [since.triggered, change.triggered].into_iter().flatten().min();
    }

    /// A Service was written. The result: seconds since its event.
    pub(super) fn written(&mut self, service: &ObjectName, metrics: &Metrics) -> Option<f64> {
        let since = self.since.remove(service)?;
        let seconds = since.at.elapsed().as_secs_f64();
        metrics.programming.observe(seconds);
        // A time in the future comes from another clock, and can't be used.
        if let Some(elapsed) = since.triggered.and_then(|triggered| triggered.elapsed().ok()) {
            metrics.network_programming.observe(elapsed.as_secs_f64());
        }
        Some(seconds)
    }

    /// The other events caused no write.
    pub(super) fn forget(&mut self) {
        self.since.clear();
    }
}
