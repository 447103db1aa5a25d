//! Ends the flows and sockets of one batch after the other.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lb_abi::UDP;
use lb_loader::LoaderError;
use tokio::sync::Notify;

use super::{
    Connections,
    batch::Batch,
    lookup::{Lookup, address},
};
use crate::{
    metrics::Metrics,
    reconcile::{Bounded, Departed, MovedFrontend},
};

/// Most backends that wait, and most frontends.
pub const WAITING: usize = 16_384;
/// How often a batch is tried.
pub const TRIES: u32 = 5;
/// Delay after the first failure; each is twice the one before.
pub const RETRY: Duration = Duration::from_millis(200);

/// Most walks over CONNTRACK for one batch.
const WALKS: u32 = 4;

/// The sending end of departed backends and moved frontends. Clones are the same.
#[derive(Clone, Debug)]
pub struct Departures(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Batch>,
    sent: Notify,
}

impl Departures {
    /// Sends backends and frontends; never waits.
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
        self.0.sent.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Batch> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends flows and sockets of departed backends and moved frontends.
#[derive(Debug)]
pub struct Worker<C> {
    departures: Departures,
    connections: Arc<Mutex<C>>,
    metrics: Metrics,
}

impl<C: Connections + 'static> Worker<C> {
    /// A worker, and its sending end.
    pub fn new(connections: C, metrics: Metrics) -> (Self, Departures) {
        let departures = Departures(Arc::default());
        let worker = Self {
            departures: departures.clone(),
            connections: Arc::new(Mutex::new(connections)),
            metrics,
        };
        (worker, departures)
    }

    /// Runs without end. What is sent during one batch is the next.
    pub async fn run(self) {
        loop {
            let batch = std::mem::take(&mut *self.departures.waiting());
            if batch.is_empty() {
                self.metrics.udp_waiting.at([]).set(0);
                self.departures.0.sent.notified().await;
                continue;
            }
            let waiting = i64::try_from(batch.of_udp()).unwrap_or(i64::MAX);
            self.metrics.udp_waiting.at([]).set(waiting);
            self.work(batch).await;
        }
    }

    async fn work(&self, batch: Batch) {
        let batch = Arc::new(batch);
        let (mut pause, mut again) = (RETRY, true);
        let mut asking = HashSet::new();
        for tried in 1..=TRIES {
            let (once, connections) = (batch.clone(), self.connections.clone());
            let before = std::mem::take(&mut asking);
            let done = tokio::task::spawn_blocking(move || {
                let connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
                end(&once, &*connections, &before)
            });
            let Done {
                flows,
                sockets,
                noted,
                asking: now,
                unanswered,
                error,
            } = match done.await {
                Ok(done) => done,
                // It panicked, which is logged, or the agent ends.
                Err(_) => return,
            };
            self.metrics.udp_flows_ended.at([]).inc_by(flows as u64);
            self.metrics.udp_sockets_ended.at([]).inc_by(sockets as u64);
            if unanswered > 0 {
                tracing::info!(
                    unanswered,
                    "ended TCP connections that backends have not answered which serve no more"
                );
            }
            asking = now;
            if flows > 0 || sockets > 0 {
                tracing::info!(
                    flows,
                    sockets,
                    of = batch.of_udp(),
                    "ended UDP flows and sockets of backends that serve no more, or of frontends that are another Service's"
                );
            }
            let Some(error) = error else {
                // A socket that was about to be connected then is connected now.
                let may_connect = noted > sockets && std::mem::take(&mut again);
                if may_connect || !asking.is_empty() {
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

/// The result of one try, also after a failure.
struct Done {
    flows: usize,
    sockets: usize,
    /// Sockets to be ended, connected or not.
    noted: usize,
    /// TCP sockets that have just asked a departed backend: one of them may be answered yet.
    asking: HashSet<u64>,
    /// TCP connections that were ended.
    unanswered: usize,
    error: Option<LoaderError>,
}

/// `before`: the TCP sockets that were asking at the look before.
fn end(batch: &Batch, connections: &impl Connections, before: &HashSet<u64>) -> Done {
    let mut done = Done {
        flows: 0,
        sockets: 0,
        noted: 0,
        asking: HashSet::new(),
        unanswered: 0,
        error: None,
    };
    let mut result = end_opening(batch, connections, before, &mut done);
    if batch.of_udp() > 0 {
        result = result.and(try_end(batch, connections, &mut done));
    }
    done.error = result.err();
    done
}

/// Ends what was asking a departed backend at the look before, and still is.
fn end_opening(
    batch: &Batch,
    connections: &impl Connections,
    before: &HashSet<u64>,
    done: &mut Done,
) -> Result<(), LoaderError> {
    if batch.unanswering().is_empty() {
        return Ok(());
    }
    let maps = Lookup::new(connections);
    let is_stale = |key: &_, remembered: &_| batch.unanswering().is_stale(key, remembered, &maps);
    // Whether a connection is being opened is known to its network namespace alone, and each is looked through with all of the
    // machine's TCP sockets. What the programs remember shows whether there is any to look for.
    let mut is_any = false;
    connections.sockets(&mut |key, remembered| is_any = is_any || is_stale(key, remembered))?;
    if is_any {
        let ended = connections.end_opening(&mut |key, remembered| {
            let is_asking = is_stale(key, remembered);
            let is_again = is_asking && before.contains(&key.cookie);
            if is_asking && !is_again {
                done.asking.insert(key.cookie);
            }
            is_again
        });
        done.unanswered = ended?;
    }
    maps.finish()
}

fn try_end(batch: &Batch, connections: &impl Connections, done: &mut Done) -> Result<(), LoaderError> {
    let maps = Lookup::new(connections);
    connections.end_choices(&mut |key, chosen| batch.is_stale_choice(key, chosen, &maps))?;
    // A packet restores one of a flow's two entries if it comes between the two deletions.
    for _ in 0..WALKS {
        let ended = connections.end_flows(&mut |key, flow| batch.is_stale_flow(key, flow, &maps))?;
        done.flows += ended;
        if ended == 0 {
            break;
        }
    }
    let backends = connections.backends()?.into_iter();
    let udp = backends.filter(|(_, backend)| backend.protocol == UDP);
    let serving = udp.map(|(_, backend)| address(&backend)).collect();
    let sockets = batch.sockets(&maps, &serving, |show| connections.sockets(show))?;
    maps.finish()?;
    done.noted = sockets.values().map(HashSet::len).sum();
    // After a failure the others are ended all the same.
    let mut result = Ok(());
    for (backend, cookies) in sockets {
        match connections.end_sockets(backend, &cookies) {
            Ok(ended) => done.sockets += ended,
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}
