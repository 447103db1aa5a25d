//! What is done on the way to a cluster, and how long it took.

use std::time::{Duration, Instant};

/// A part of the way to a cluster that is done, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was done.
    pub what: String,
    /// How long it took.
    pub took: Duration,
}

/// Says how long each step took.
pub(super) struct StopWatch<'a> {
    since: Instant,
    tell: &'a mut (dyn FnMut(&Step) + Send),
}

impl<'a> StopWatch<'a> {
    pub(super) fn start(tell: &'a mut (dyn FnMut(&Step) + Send)) -> Self {
        Self {
            since: Instant::now(),
            tell,
        }
    }

    pub(super) fn done(&mut self, what: &str) {
        let now = Instant::now();
        (self.tell)(&Step {
            what: what.to_owned(),
            took: now - self.since,
        });
        self.since = now;
    }
}
