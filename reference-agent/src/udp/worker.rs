//! One batch after the other.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lb_loader::LoaderError;
use tokio::sync::Notify;

use super::{Connections, batch::Batch, lookup::Lookup};
use crate::{
    metrics::Metrics,
    reconcile::{Bounded, Departed, MovedFrontend},
};

/// Most backends that wait, and most frontends.
pub const WAITING: usize = 16_384;
/// How often a batch that fails is tried in all.
pub const TRIES: u32 = 5;
/// After the first failure; twice as long after each further one.
pub const RETRY: Duration = Duration::from_millis(200);

/// Most walks over FLOWS for one batch.
const WALKS: u32 = 4;

/// Where departed backends and moved frontends are told. Clones are the same.
#[derive(Clone, Debug)]
pub struct Departures(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Batch>,
    told: Notify,
}

impl Departures {
    /// Takes backends and frontends; never waits.
    pub fn send(&self, departed: Bounded<Departed>, moved: Bounded<MovedFrontend>) {
        if departed.is_empty() && moved.is_empty() {
            return;
        }
        {
            let mut waiting = self.waiting();
            for one in departed.listed {
                waiting.add(one, WAITING);
            }
            if departed.unlisted > 0 {
                waiting.add_unlisted_backends();
            }
            for one in moved.listed {
                waiting.add_moved(one, WAITING);
            }
            if moved.unlisted > 0 {
                waiting.add_unlisted_frontends();
            }
        }
        self.0.told.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Batch> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what departed backends and moved frontends leave.
#[derive(Debug)]
pub struct Worker<C> {
    departures: Departures,
    connections: Arc<Mutex<C>>,
    metrics: Metrics,
}

impl<C: Connections + 'static> Worker<C> {
    /// And where to tell it.
    pub fn new(connections: C, metrics: Metrics) -> (Self, Departures) {
        let departures = Departures(Arc::default());
        let worker = Self {
            departures: departures.clone(),
            connections: Arc::new(Mutex::new(connections)),
            metrics,
        };
        (worker, departures)
    }

    /// For ever. What is told while one batch is worked on is the next.
    pub async fn run(self) {
        loop {
            let batch = std::mem::take(&mut *self.departures.waiting());
            if batch.is_empty() {
                self.metrics.udp_waiting.at([]).set(0);
                self.departures.0.told.notified().await;
                continue;
            }
            let waiting = i64::try_from(batch.len()).unwrap_or(i64::MAX);
            self.metrics.udp_waiting.at([]).set(waiting);
            self.work(batch).await;
        }
    }

    async fn work(&self, batch: Batch) {
        let batch = Arc::new(batch);
        let (mut pause, mut again) = (RETRY, true);
        for tried in 1..=TRIES {
            let (once, connections) = (batch.clone(), self.connections.clone());
            let done = tokio::task::spawn_blocking(move || {
                let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
                end(&once, &mut *connections)
            });
            let Done {
                flows,
                sockets,
                noted,
                error,
            } = match done.await {
                Ok(done) => done,
                // It panicked, and was named; or the agent ends.
                Err(_) => return,
            };
            self.metrics.udp_flows_ended.at([]).inc_by(flows as u64);
            self.metrics.udp_sockets_ended.at([]).inc_by(sockets as u64);
            if flows > 0 || sockets > 0 {
                tracing::info!(
                    flows,
                    sockets,
                    of = batch.len(),
                    "ended UDP flows and sockets of backends that serve no more, or of frontends that are another Service's"
                );
            }
            let Some(error) = error else {
                // A socket whose call of connect had not returned when it was looked at is connected now.
                if noted > sockets && std::mem::take(&mut again) {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
                return;
            };
            self.metrics.udp_failures.at([]).inc();
            tracing::warn!(%error, tried, of = TRIES, "UDP flows or sockets are not ended whose backends or frontends have changed");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}

/// What one try came to. What was ended is ended, whatever failed.
struct Done {
    flows: usize,
    sockets: usize,
    /// Sockets that were to go, connected or not.
    noted: usize,
    error: Option<LoaderError>,
}

fn end(batch: &Batch, connections: &mut impl Connections) -> Done {
    let mut done = Done {
        flows: 0,
        sockets: 0,
        noted: 0,
        error: None,
    };
    if let Err(error) = try_end(batch, connections, &mut done) {
        done.error = Some(error);
    }
    done
}

fn try_end(batch: &Batch, connections: &mut impl Connections, done: &mut Done) -> Result<(), LoaderError> {
    let maps = Lookup::read(connections)?;
    connections.end_choices(&mut |key, chosen| batch.choice_goes(key, chosen, &maps))?;
    // A packet brings one of a flow's two entries back, if it comes when that is gone and the other is not.
    for _ in 0..WALKS {
        let ended = connections.end_flows(&mut |key, flow| batch.flow_goes(key, flow, &maps))?;
        done.flows += ended;
        if ended == 0 {
            break;
        }
    }
    let sockets = batch.sockets(&maps, |show| connections.sockets(show))?;
    done.noted = sockets.values().map(std::collections::HashSet::len).sum();
    // One that fails is no reason to leave the others.
    let mut result = Ok(());
    for (backend, cookies) in sockets {
        match connections.end_sockets(backend, &cookies) {
            Ok(ended) => done.sockets += ended,
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}
