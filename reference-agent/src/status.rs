//! What the agent says about itself.

use std::time::{Duration, Instant};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

/// A control loop that has not come round in this time hangs: it comes round every two seconds.
pub const BEAT_LIMIT: Duration = Duration::from_secs(20);

/// The agent's state after the last round of its control loop.
#[derive(Clone, Debug)]
pub struct Status {
    /// Why this node can't be relied on, one sentence each; empty: it can.
    pub reasons: Vec<String>,
    /// When the control loop last came round.
    pub beat: Instant,
}

/// Serves `/healthz` and `/readyz` until told to end.
///
/// - `/healthz`: 200 while the control loop comes round, whatever the API server does; otherwise 503.
/// - `/readyz`: 200 if the programs are attached and alone, both kinds have synced, and nothing waits to be
///   written; otherwise 503 with one reason in each line.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    status: watch::Receiver<Status>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(status);
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

async fn healthz(State(status): State<watch::Receiver<Status>>) -> (StatusCode, String) {
    let silent = status.borrow().beat.elapsed();
    if silent < BEAT_LIMIT {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let silent = silent.as_secs();
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the control loop has not come round for {silent} s\n"),
        )
    }
}

async fn readyz(State(status): State<watch::Receiver<Status>>) -> (StatusCode, String) {
    let status = status.borrow();
    if status.reasons.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let lines = status.reasons.iter().flat_map(|reason| [reason, "\n"]);
    (StatusCode::SERVICE_UNAVAILABLE, lines.collect())
}
