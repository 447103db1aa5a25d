//! The steps of a cluster's start, and their durations.

use std::time::{Duration, Instant};

/// A completed step of a cluster's start, with its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Description of the step.
    pub what: String,
    /// Its duration.
    pub took: Duration,
}

/// Reports the duration of each step.
pub(super) struct StopWatch<'a> {
    since: Instant,
    report: &'a mut (dyn FnMut(&Step) + Send),
}

impl<'a> StopWatch<'a> {
    pub(super) fn start(report: &'a mut (dyn FnMut(&Step) + Send)) -> Self {
        Self {
            since: Instant::now(),
            report,
        }
    }

    pub(super) fn done(&mut self, what: &str) {
        let now = Instant::now();
        (self.report)(&Step {
            what: what.to_owned(),
            took: now - self.since,
        });
        self.since = now;
    }
}
