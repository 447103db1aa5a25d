//! The agent: assembles feeds, control loop, hooks and workers. No other module imports this one.
//!
//! ```text
//! feeds (API or folder, host) ─▶ events ─▶ control loop ─▶ maps, hooks
//! workers (probe, …) ─▶ readiness ◀───────────┘ └─▶ changes ─▶ health checks, ledger, ending of UDP flows
//!                           └─▶ /healthz, /readyz
//! ```
//!
//! `control_loop` (events and deadlines in, rounds out), `rounds` (the steps of one), `service_ranges` (of cluster IPs, to the
//! programs); `latency`, `maglev_metric` and `periodic_metrics` measure.
//!
//! # Bounds
//! One round carries at most [`EVENTS`](crate::feed::EVENTS) events into the maps. Rounds are two seconds apart at most.
//! A few requests for `/dump` and `/plan` wait; more are refused.

mod control_loop;
mod latency;
mod maglev_metric;
mod periodic_metrics;
mod rounds;
mod service_ranges;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use lb_loader::LoaderError;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use self::{
    control_loop::ControlLoop,
    latency::Latency,
    periodic_metrics::Survey,
    rounds::{Audits, Rounds},
};
use crate::{
    api_access::ApiServers,
    control::{Control, DesiredState},
    datapath::Datapath,
    feed::{Feed, queue},
    health_checks,
    hooks::Hooks,
    host::HostWatch,
    maglev::Scale,
    maps::MapError,
    pod_network::Plans,
    reports::Reports,
    status::{self, Server},
    udp,
};

/// Requests for `/dump` and `/plan` that wait for the control loop.
const QUESTIONS: usize = 4;

/// Why an agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The health endpoint's address is not available.
    #[error(
        "failed to listen on {address} for /healthz, /readyz and /metrics; is another agent running, or should --listen be another address?"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The health endpoint failed.
    #[error("failed to serve /healthz and /readyz")]
    Serve(#[source] std::io::Error),
    /// The maps can't be read.
    #[error("failed to adopt the maps")]
    Adopt(#[from] MapError),
    /// The maps of flows and sockets can't be opened.
    #[error("failed to open the maps of flows and sockets")]
    Connections(#[from] LoaderError),
    /// A task panicked.
    #[error("a task of the agent ended")]
    Panicked(#[from] JoinError),
}

/// What an agent is put together from.
pub struct Parts<B, D> {
    /// Makes plans of events.
    pub desired: B,
    /// Maps and programs.
    pub datapath: D,
    /// Where events come from.
    pub feeds: Vec<Feed>,
    /// Learns the endpoints of API servers; `None`: objects do not come from an API server.
    pub servers: Option<ApiServers>,
    /// This machine; `None`: no devices are served, and one of the feeds sends the addresses.
    pub host: Option<HostWatch>,
    /// Takes plans of the pods' network; `None`: the agent has no `--pod-network`.
    pub pod_network: Option<Plans>,
    /// Tasks beside the control loop. They are dropped when the agent ends.
    pub workers: Vec<BoxFuture<'static, ()>>,
    /// Reports of all modules; feeds and workers hold clones.
    pub reports: Reports,
    /// Serves health, metrics and the rest; from [`listen`].
    pub listener: TcpListener,
    /// The maps' folder, for `/dump`.
    pub maps_at: String,
    /// Time in which every map is audited once.
    pub audit_interval: Duration,
}

/// Binds the address at which health, metrics and the rest are served.
///
/// # Errors
/// The address is not available.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| AgentError::Listen { address, source })
}

/// Runs an agent until `shutdown`. Programs and maps stay attached and pinned, and go on serving.
///
/// Needs a multi-threaded runtime: map writes block for as long as the kernel takes.
///
/// # Errors
/// Only what no retry can heal. An unreachable API server is waited for.
pub async fn run<B: DesiredState + 'static, D: Datapath + 'static>(
    parts: Parts<B, D>,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    let Parts {
        desired,
        datapath,
        feeds,
        servers,
        host,
        pod_network,
        workers,
        reports,
        listener,
        maps_at,
        audit_interval,
    } = parts;
    // Cancels the other tasks on every way out.
    let shutdown = shutdown.child_token();
    let _guard = shutdown.clone().drop_guard();

    let control = Control::new(desired, datapath.maps())?;
    let maps = datapath.maps();
    let (ending_udp, departures) = udp::Worker::new(datapath.connections()?, reports.metrics.clone());
    let now = Instant::now();
    let (health_checks, wanted) = watch::channel(health_checks::Wanted::new());
    let rounds = Rounds {
        control,
        hooks: Hooks::new(datapath, reports.metrics.clone(), now),
        host,
        pod_network,
        servers,
        learned: false,
        departures,
        health_checks,
        reports: reports.clone(),
        audits: Audits::new(audit_interval, now),
        latency: Latency::default(),
        survey: Survey::default(),
        // A cluster without Nodes has a plan of the pods' network, too.
        nodes_changed: true,
        service_ranges: None,
        scale: Scale::default(),
    };
    let (sender, events) = queue();
    let (asker, questions) = mpsc::channel(QUESTIONS);
    // Before the first request: it reports that nothing is ready yet.
    let control_loop = ControlLoop::new(rounds, maps);

    let mut others = JoinSet::new();
    for feed in feeds {
        others.spawn(feed.run(sender.clone()));
    }
    drop(sender);
    others.spawn(ending_udp.run());
    for worker in workers {
        others.spawn(worker);
    }
    others.spawn(health_checks::serve(wanted, reports.clone()));
    let mut essential = JoinSet::new();
    let health = status::serve(
        listener,
        Server {
            reports,
            questions: asker,
            maps_at,
        },
        shutdown.clone(),
    );
    essential.spawn(async move { health.await.map_err(AgentError::Serve) });
    let ending = shutdown.clone();
    essential.spawn(async move {
        control_loop.run(events, questions, ending).await;
        Ok(())
    });
    let mut result = Ok(());
    loop {
        // The end of an essential task ends the agent, and so does a panic in any task.
        tokio::select! {
            ended = essential.join_next() => match ended {
                Some(ended) => {
                    result = result.and(ended.map_err(AgentError::Panicked).flatten());
                    shutdown.cancel();
                }
                None => return result,
            },
            Some(ended) = others.join_next() => {
                if let Err(panicked) = ended {
                    result = result.and(Err(AgentError::Panicked(panicked)));
                    shutdown.cancel();
                }
            }
        }
    }
}
