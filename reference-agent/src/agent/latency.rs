//! How long it takes from an event to the maps.

use std::{
    collections::HashMap,
    time::{Instant, SystemTime},
};

use super::Arrival;
use crate::{metrics::Metrics, model::Event, names::ObjectName};

/// Services whose time is taken at once; of more, those that came first.
const WATCHED: usize = 10_000;

/// Services about which an event came that is not in the maps yet.
#[derive(Debug, Default)]
pub(super) struct Latency {
    since: HashMap<ObjectName, Since>,
}

/// When the first of the events came, and the first of their causes happened.
#[derive(Clone, Copy, Debug)]
struct Since {
    at: Instant,
    triggered: Option<SystemTime>,
}

impl Latency {
    /// An event is about to be applied.
    pub(super) fn note(&mut self, arrival: &Arrival) {
        let service = match &arrival.event {
            Event::ServiceApplied(service) => Some(service.name.clone()),
            Event::SliceApplied(slice) => slice.owner(),
            // What is gone is not written.
            _ => None,
        };
        let Some(service) = service else { return };
        if self.since.len() >= WATCHED && !self.since.contains_key(&service) {
            return;
        }
        let since = self.since.entry(service).or_insert(Since {
            at: arrival.at,
            triggered: arrival.triggered,
        });
        since.triggered = [since.triggered, arrival.triggered].into_iter().flatten().min();
    }

    /// A Service was written; the result says how long after its event.
    pub(super) fn written(&mut self, service: &ObjectName, metrics: &Metrics) -> Option<f64> {
        let since = self.since.remove(service)?;
        let seconds = since.at.elapsed().as_secs_f64();
        metrics.programming.observe(seconds);
        // A clock that is ahead of this one's says nothing.
        if let Some(elapsed) = since.triggered.and_then(|triggered| triggered.elapsed().ok()) {
            metrics.network_programming.observe(elapsed.as_secs_f64());
        }
        Some(seconds)
    }

    /// All else that came changed nothing.
    pub(super) fn forget(&mut self) {
        self.since.clear();
    }
}
