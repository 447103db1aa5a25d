//! The agent: watches, control loop and hooks, put together.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use futures::FutureExt;
use kube::Client;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{
    control::{Brain, Control},
    datapath::Datapath,
    hooks::Hooks,
    maps::MapError,
    model::{Event, Kind, Service, Slice},
    reflect,
    status::{self, Status},
};

/// Events that are carried into the maps together.
const BATCH: usize = reflect::EVENTS;

/// Why an agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The health endpoint's address can't be had.
    #[error(
        "failed to listen on {address} for /healthz and /readyz: {source}; is another agent running, or should --listen be another address?"
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
    /// A task panicked.
    #[error("a part of the agent ended: {0}")]
    Panicked(#[from] JoinError),
}

/// Runs an agent until told to end; then everything stays attached and pinned, and goes on serving.
///
/// Needs a multi-threaded runtime: writes to maps block for as long as the kernel takes.
///
/// # Errors
/// Only what no retry can heal. An API server that can't be reached is waited for.
pub async fn run<B: Brain + 'static, D: Datapath + 'static>(
    client: Client,
    brain: B,
    datapath: D,
    listen: SocketAddr,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    // Whatever way this ends, the other tasks are told.
    let shutdown = shutdown.child_token();
    let _guard = shutdown.clone().drop_guard();

    let listener = TcpListener::bind(listen)
        .await
        .map_err(|source| AgentError::Listen {
            address: listen,
            source,
        })?;
    let control = Control::new(brain, datapath.maps())?;
    let hooks = Hooks::new(datapath, Instant::now());
    let (publish, published) = watch::channel(Status {
        reasons: reasons(&control, &hooks),
        beat: Instant::now(),
    });
    let (sender, events) = mpsc::channel(reflect::EVENTS);

    let mut tasks = JoinSet::new();
    let health = status::serve(listener, published, shutdown.clone());
    tasks.spawn(async move { health.await.map_err(AgentError::Serve) });
    let services = reflect::reflect::<Service>(client.clone(), sender.clone());
    let slices = reflect::reflect::<Slice>(client, sender);
    tasks.spawn(services.map(Ok));
    tasks.spawn(slices.map(Ok));
    let ending = shutdown.clone();
    tasks.spawn(drive(control, hooks, events, publish, ending).map(Ok));
    // The first to end ends all: told to, or by a failure.
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        result = result.and(ended.map_err(AgentError::Panicked).flatten());
        shutdown.cancel();
    }
    result
}

/// The control loop: events and deadlines in, writes out.
async fn drive<B: Brain, D: Datapath>(
    mut control: Control<B, D::Maps>,
    mut hooks: Hooks<D>,
    mut events: mpsc::Receiver<Event>,
    publish: watch::Sender<Status>,
    shutdown: CancellationToken,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::task::block_in_place(|| round(&mut control, &mut hooks, Instant::now()));
        report(&publish, reasons(&control, &hooks));
        let wake = control.deadline().into_iter().chain([soonest(&hooks)]).min();
        let wake = wake.unwrap_or_else(|| soonest(&hooks));
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = events.recv_many(&mut batch, BATCH) => {
                for event in batch.drain(..) {
                    control.apply(event);
                }
            }
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

fn round<B: Brain, D: Datapath>(control: &mut Control<B, D::Maps>, hooks: &mut Hooks<D>, now: Instant) {
    control.reconcile(now);
    hooks.look(control.synced(), now);
}

/// While the hooks wait for the maps, their time is past; the loop comes round anyway, for its beat.
fn soonest<D: Datapath>(hooks: &Hooks<D>) -> Instant {
    const IDLE: Duration = Duration::from_millis(500);
    hooks.next().max(Instant::now() + IDLE)
}

/// Why this node can't be relied on.
fn reasons<B: Brain, D: Datapath>(control: &Control<B, D::Maps>, hooks: &Hooks<D>) -> Vec<String> {
    let unsynced = control.brain().model().unsynced().map(|kind| {
        let kind = match kind {
            Kind::Service => "services",
            Kind::EndpointSlice => "endpointslices",
        };
        format!("{kind} have not been listed yet")
    });
    hooks
        .reasons()
        .into_iter()
        .chain(unsynced)
        .chain(control.troubles())
        .collect()
}

fn report(publish: &watch::Sender<Status>, reasons: Vec<String>) {
    publish.send_modify(|status| {
        if status.reasons != reasons {
            if reasons.is_empty() {
                tracing::info!("ready");
            } else {
                tracing::info!(?reasons, "not ready");
            }
        }
        *status = Status {
            reasons,
            beat: Instant::now(),
        };
    });
}
