//! The agent: feeds, control loop, hooks and workers, put together.
//!
//! ```text
//! feeds (API or folder, host) ─▶ events ─▶ control loop ─▶ maps, hooks
//! workers (own way, probe, …) ─▶ board ◀──────┘ └─▶ changes ─▶ those who act on them
//!                                  └─▶ /healthz, /readyz
//! ```
//!
//! # Bounds
//! [`EVENTS`] in the queue to the control loop, which slows the feeds down when it is full; as many are carried into
//! the maps together. From one round to the next, two seconds at most.
//! A few questions wait for an answer; more are refused.

mod control_loop;
mod latency;
mod queue;
mod rounds;
mod scale;
mod service_ranges;
mod survey;

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
    rounds::{Audits, Rounds},
    survey::Survey,
};
pub use self::{
    control_loop::Question,
    queue::{Arrival, Closed, EventSender, queue},
};
use crate::{
    api_access::ApiServers,
    control::{Control, DesiredState},
    datapath::Datapath,
    health_checks,
    hooks::Hooks,
    host::HostWatch,
    maglev::Scale,
    maps::MapError,
    reports::Reports,
    status::{self, Server},
    udp,
};

/// Questions of `/dump` and `/plan` that wait for the control loop.
const QUESTIONS: usize = 4;
/// Events that wait for the control loop.
pub const EVENTS: usize = 1024;

/// Why an agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The health endpoint's address can't be had.
    #[error(
        "failed to listen on {address} for /healthz, /readyz and /metrics: {source}; is another agent running, or should --listen be another address?"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The health endpoint failed.
    #[error("failed to serve /healthz and /readyz: {0}")]
    Serve(std::io::Error),
    /// The maps can't be read.
    #[error("failed to adopt the maps: {0}")]
    Adopt(#[from] MapError),
    /// The flows and sockets can't be had.
    #[error("failed to open the maps of flows and sockets: {0}")]
    Connections(#[from] LoaderError),
    /// A task panicked.
    #[error("a part of the agent ended: {0}")]
    Panicked(#[from] JoinError),
}

/// Where events come from: runs until nobody listens. One that returns earlier has nothing more to say.
pub struct Feed(Box<dyn FnOnce(EventSender) -> BoxFuture<'static, ()> + Send>);

impl Feed {
    /// A feed that sends what `run` sends.
    pub fn new<F, R>(run: F) -> Self
    where
        F: FnOnce(EventSender) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self(Box::new(move |events| Box::pin(run(events))))
    }

    /// Runs until nobody listens, or there is nothing more to say.
    pub fn run(self, events: EventSender) -> BoxFuture<'static, ()> {
        (self.0)(events)
    }
}

/// What an agent is put together from.
pub struct Parts<B, D> {
    /// Makes plans of events.
    pub desired: B,
    /// Maps and programs.
    pub datapath: D,
    /// Where events come from.
    pub feeds: Vec<Feed>,
    /// The API servers, which learn what their Services' endpoints are; `None`: objects come from elsewhere.
    pub servers: Option<ApiServers>,
    /// This machine; `None`: it has no devices to be served, and its addresses come by a feed of somebody's.
    pub host: Option<HostWatch>,
    /// What runs beside the control loop. Dropped wherever it waits when the agent ends.
    pub workers: Vec<BoxFuture<'static, ()>>,
    /// What all parts report to; feeds and workers hold clones.
    pub reports: Reports,
    /// Where health, metrics and the rest are served, from [`listen`].
    pub listener: TcpListener,
    /// Where the maps are, as `/dump` says it.
    pub maps_at: String,
    /// In which time all maps are compared with what was written, again and again.
    pub audit_interval: Duration,
}

/// Takes the address where health, metrics and the rest are to be served.
///
/// # Errors
/// It can't be had.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| AgentError::Listen { address, source })
}

/// Runs an agent until told to end; then everything stays attached and pinned, and goes on serving.
///
/// Needs a multi-threaded runtime: writes to maps block for as long as the kernel takes.
///
/// # Errors
/// Only what no retry can heal. An API server that can't be reached is waited for.
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
        workers,
        reports,
        listener,
        maps_at,
        audit_interval,
    } = parts;
    // Whatever way this ends, the other tasks are told.
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
        servers,
        learned: false,
        departures,
        health_checks,
        reports: reports.clone(),
        audits: Audits::new(audit_interval, now),
        latency: Latency::default(),
        survey: Survey::default(),
        // A cluster without Nodes has a plan, too.
        nodes_changed: true,
        service_ranges: None,
        scale: Scale::default(),
    };
    let (sender, events) = queue();
    let (asking, questions) = mpsc::channel(QUESTIONS);
    // Before anybody can ask.
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
            asking,
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
        // The first essential one to end ends all, and so does a panic anywhere.
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
