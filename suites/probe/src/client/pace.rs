//! When the attempts of one entry begin, and when no more do.

use std::{sync::Arc, time::Duration};

use oracle::history::{Attempt, Outcome, PlanEntry, Until};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{IN_FLIGHT, attempt, flow::Flow};

/// One entry of a plan, being carried out.
pub(super) struct Entry {
    client: Arc<str>,
    /// Unique for the entry: first part of its nonces.
    prefix: String,
    entry: Arc<PlanEntry>,
    sender: mpsc::Sender<Attempt>,
    /// The whole client ends: attempts under way too.
    stop: CancellationToken,
    /// This entry begins no more attempts; those under way are finished.
    enough: CancellationToken,
}

impl Entry {
    pub(super) fn new(
        client: &str,
        index: usize,
        entry: PlanEntry,
        sender: mpsc::Sender<Attempt>,
        stop: CancellationToken,
    ) -> Self {
        let enough = stop.child_token();
        let prefix = format!("{:016x}-{index}", rand::random::<u64>());
        Self {
            client: client.into(),
            prefix,
            entry: Arc::new(entry),
            sender,
            stop,
            enough,
        }
    }

    pub(super) async fn run(self) {
        let stop = self.stop.clone();
        let paced = async {
            match (self.entry.flows, self.entry.interval_ms) {
                (Some(flows), _) => self.established(flows).await,
                (None, 0) => self.closed_loop().await,
                (None, _) => self.open_loop().await,
            }
        };
        stop.run_until_cancelled(paced).await;
    }

    /// Each attempt begins when the last has ended.
    async fn closed_loop(&self) {
        for number in 0..self.entry.count {
            if self.enough.is_cancelled() {
                return;
            }
            self.attempt(number).await;
        }
    }

    /// Each attempt begins at its time, whatever became of those before it, unless too many are under way.
    async fn open_loop(&self) {
        let begin = Instant::now();
        let interval = Duration::from_millis(self.entry.interval_ms);
        let at_once = self.entry.at_once.and_then(|most| usize::try_from(most).ok());
        let room = Arc::new(Semaphore::new(at_once.unwrap_or(IN_FLIGHT).min(IN_FLIGHT)));
        let mut under_way = JoinSet::new();
        for number in 0..self.entry.count {
            let turn = async {
                tokio::time::sleep_until(begin + interval * number).await;
                // The semaphore is never closed.
                room.clone().acquire_owned().await.ok()
            };
            let Some(Some(permit)) = self.enough.run_until_cancelled(turn).await else {
                break;
            };
            let entry = self.share();
            under_way.spawn(async move {
                entry.attempt(number).await;
                drop(permit);
            });
            while under_way.try_join_next().is_some() {}
        }
        under_way.join_all().await;
    }

    /// Exchanges on sockets that live.
    async fn established(&self, flows: u32) {
        let mut all = JoinSet::new();
        for number in 0..flows {
            let (client, entry) = (self.client.clone(), self.entry.clone());
            all.spawn(Flow::new(client, &self.prefix, entry, number, self.sender.clone()).run());
        }
        all.join_all().await;
    }

    async fn attempt(&self, number: u32) {
        let nonce = format!("{}-{number}", self.prefix);
        let attempt = attempt::make(&self.client, &self.entry, number, nonce).await;
        if self
            .entry
            .until
            .as_ref()
            .is_some_and(|until| met(until, &attempt.outcome))
        {
            self.enough.cancel();
        }
        // The writer is gone only after it has cancelled `stop`.
        drop(self.sender.send(attempt).await);
    }

    fn share(&self) -> Self {
        Self {
            client: self.client.clone(),
            prefix: self.prefix.clone(),
            entry: self.entry.clone(),
            sender: self.sender.clone(),
            stop: self.stop.clone(),
            enough: self.enough.clone(),
        }
    }
}

fn met(until: &Until, outcome: &Outcome) -> bool {
    match (until, outcome) {
        (Until::Identity(identity), Outcome::Answered { answer, .. }) => answer.identity == *identity,
        (Until::Refused, Outcome::Failed { errno, .. }) => {
            ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EPERM"].contains(&errno.as_str())
        }
        _ => false,
    }
}
