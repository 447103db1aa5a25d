//! What the agent says about itself.

use std::time::Duration;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::board::Board;

/// A control loop that has not come round in this time hangs: it comes round every two seconds.
pub const BEAT_LIMIT: Duration = Duration::from_secs(20);

/// Serves `/healthz` and `/readyz` until told to end.
///
/// - `/healthz`: 200 while the control loop comes round, whatever the API server does; otherwise 503.
/// - `/readyz`: 200 if the programs are attached and alone, all kinds have synced, and nothing waits to be
///   written; otherwise 503 with one reason in each line.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, board: Board, shutdown: CancellationToken) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(board);
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

async fn healthz(State(board): State<Board>) -> (StatusCode, String) {
    let silent = board.silent();
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

async fn readyz(State(board): State<Board>) -> (StatusCode, String) {
    let reasons = board.reasons();
    if reasons.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let lines = reasons.iter().flat_map(|reason| [reason, "\n"]);
    (StatusCode::SERVICE_UNAVAILABLE, lines.collect())
}
