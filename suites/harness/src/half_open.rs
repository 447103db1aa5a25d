//! Connections that are being opened while something changes: their first packets are not answered, and their kernels send
//! them again (after 1, 3, 7 and 15 s).

use std::time::Duration;

use futures::future::try_join_all;
use oracle::history::{Attempt, PlanEntry};

use crate::{
    client::{Client, Run},
    context::Context,
    destination::{Destination, longest},
    probing,
    verdict::Halt,
};

/// Connections that are being opened.
#[must_use = "what becomes of them is to be judged"]
pub struct HalfOpen {
    runs: Vec<Run>,
    longest: Duration,
}

impl HalfOpen {
    /// Each client begins so many connections to each target, one in a [`Limits::exchange`](crate::limits::Limits::exchange),
    /// and each is given up after this time.
    ///
    /// # Errors
    /// If a client can't be started.
    pub async fn begin(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        count: u32,
        given_up: Duration,
    ) -> Result<Self, Halt> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let entry = |target: &Destination| PlanEntry {
            count,
            interval_ms: millis(cx.limits().exchange),
            limit_ms: millis(given_up),
            ..target.once(cx.limits())
        };
        let entries: Vec<PlanEntry> = targets.iter().map(entry).collect();
        let starts = clients
            .iter()
            .map(|client| probing::begin(cx, client, entries.clone()));
        Ok(Self {
            runs: try_join_all(starts).await?,
            longest: longest(&entries),
        })
    }

    /// None of them has ended so far.
    #[must_use]
    pub fn are_waiting(&self) -> bool {
        self.runs
            .iter()
            .all(|run| run.with_attempts(<[Attempt]>::is_empty))
    }

    /// All of them, once they have ended.
    ///
    /// # Errors
    /// If a client does not end.
    pub async fn end(self) -> Result<Vec<Attempt>, Halt> {
        let limit = self.longest;
        let ends = self.runs.into_iter().map(|run| run.finish(limit));
        Ok(try_join_all(ends).await?.concat())
    }
}
