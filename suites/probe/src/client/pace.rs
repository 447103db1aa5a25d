//! When the attempts of one entry start, and when no more do.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use oracle::history::{Attempt, Outcome, PlanEntry, Until, WHILE_LATE};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{IN_FLIGHT, attempt, flow::Flow};

/// Answers that take longer are late: requests wait in the queue of a backend or of a kernel that has no more processor
/// time. This is far longer than an idle machine takes, and short enough that clients have not queued seconds of a
/// backend's work before the first late answer.
const LATE: Duration = Duration::from_millis(100);
/// How long a late answer counts: if there is a queue, others follow meanwhile.
const COUNTS: Duration = Duration::from_millis(250);
/// How late answers are, shared by the entries of one client.
pub(super) struct Queue {
    /// Answers count as late until then.
    late_until: Mutex<Instant>,
    room: Arc<Semaphore>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            late_until: Mutex::new(Instant::now()),
            room: Arc::new(Semaphore::new(WHILE_LATE)),
        }
    }

    /// While answers are late, waits for a permit for one more attempt, which holds it until it ends. Without late
    /// answers it does not wait: timeouts delay nothing.
    async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            let until = *self.late_until();
            if Instant::now() >= until {
                return None;
            }
            // The semaphore is never closed.
            if let Ok(room) = timeout_at(until, self.room.clone().acquire_owned()).await {
                return room.ok();
            }
        }
    }

    fn note(&self, attempt: &Attempt) {
        let is_answered = !matches!(attempt.outcome, Outcome::Timeout { .. });
        let took = Duration::from_micros(attempt.end_us.saturating_sub(attempt.start_us));
        if is_answered && took > LATE {
            *self.late_until() = Instant::now() + COUNTS;
        }
    }

    fn late_until(&self) -> MutexGuard<'_, Instant> {
        self.late_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running entry of a plan.
pub(super) struct Entry {
    client: Arc<str>,
    /// Unique for the entry: first part of its nonces.
    prefix: String,
    entry: Arc<PlanEntry>,
    sender: mpsc::Sender<Attempt>,
    queue: Arc<Queue>,
    /// Ends the whole client, with attempts under way.
    stop: CancellationToken,
    /// Ends this entry: it starts no more attempts; those under way are finished.
    enough: CancellationToken,
}

impl Entry {
    pub(super) fn new(
        client: &str,
        index: usize,
        entry: PlanEntry,
        sender: mpsc::Sender<Attempt>,
        queue: Arc<Queue>,
        stop: CancellationToken,
    ) -> Self {
        let enough = stop.child_token();
        let prefix = format!("{:016x}-{index}", rand::random::<u64>());
        Self {
            client: client.into(),
            prefix,
            entry: Arc::new(entry),
            sender,
            queue,
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

    /// Each attempt starts when the last has ended.
    async fn closed_loop(&self) {
        for number in 0..self.entry.count {
            if self.enough.is_cancelled() {
                return;
            }
            self.attempt(number).await;
        }
    }

    /// Each attempt starts at its time, whatever the result of earlier ones, unless too many are under way or answers
    /// are late. Starts that are late because the client itself did not run are caught up with at twice the pace, not
    /// all at once.
    async fn open_loop(&self) {
        let begin = Instant::now();
        let interval = Duration::from_millis(self.entry.interval_ms);
        let at_once = self.entry.at_once.and_then(|most| usize::try_from(most).ok());
        let room = Arc::new(Semaphore::new(at_once.unwrap_or(IN_FLIGHT).min(IN_FLIGHT)));
        let mut under_way = JoinSet::new();
        let mut earliest = begin;
        for number in 0..self.entry.count {
            let turn = async {
                tokio::time::sleep_until(earliest.max(begin + interval * number)).await;
                let queued = self.queue.enter().await;
                // The semaphore is never closed.
                Some((queued, room.clone().acquire_owned().await.ok()?))
            };
            let Some(Some(permits)) = self.enough.run_until_cancelled(turn).await else {
                break;
            };
            earliest = Instant::now() + interval / 2;
            let entry = self.share();
            under_way.spawn(async move {
                entry.attempt(number).await;
                drop(permits);
            });
            while under_way.try_join_next().is_some() {}
        }
        under_way.join_all().await;
    }

    /// Exchanges on sockets that stay open.
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
        self.queue.note(&attempt);
        if self
            .entry
            .until
            .as_ref()
            .is_some_and(|until| met(until, &attempt.outcome))
        {
            self.enough.cancel();
        }
        // The writer ends only after it has cancelled `stop`.
        drop(self.sender.send(attempt).await);
    }

    fn share(&self) -> Self {
        Self {
            client: self.client.clone(),
            prefix: self.prefix.clone(),
            entry: self.entry.clone(),
            sender: self.sender.clone(),
            queue: self.queue.clone(),
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
