//! What the agent says about itself over HTTP.
//!
//! # Bounds
//! [`ANSWER_LIMIT`] for an answer that the control loop must give; a few of those at once, more are refused.

use std::time::Duration;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{agent::Question, board::BEAT_LIMIT, maps::MapError, reports::Reports};

/// A question that the control loop has not answered in this time is given up.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Header of `/dump`: where the maps are, so that nobody takes them for others.
pub const MAPS_AT: &str = "plumbline-maps-at";
/// For how long clients may hold up the end of the process: a scrape takes less.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Media type of `/metrics`.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What answers are made of.
#[derive(Clone, Debug)]
pub struct Server {
    /// What the parts have reported.
    pub reports: Reports,
    /// For what only the control loop can tell.
    pub asking: mpsc::Sender<Question>,
    /// Where the maps are.
    pub maps_at: String,
}

/// Serves until told to end:
///
/// | path | answer |
/// |---|---|
/// | `/healthz` | 200 while the control loop comes round, whatever the API server does; otherwise 503 |
/// | `/readyz` | 200 if this node can be relied on: programs attached and alone, everything listed and written, and the agent's own probe answered; otherwise 503 with one reason in each line |
/// | `/metrics` | counters and gauges, as METRICS.md names them (OpenMetrics) |
/// | `/findings` | what of the objects can't be used, one line each |
/// | `/dump` | the maps as text, as `reference-agent dump` prints them |
/// | `/plan` | in the same form, what they should say: planned from scratch |
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    server: Server,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/findings", get(findings))
        .route("/dump", get(dump))
        .route("/plan", get(plan))
        .with_state(server);
    let serving = axum::serve(listener, router).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tokio::select! {
        ended = serving => ended,
        // A client that does not end its request, or does not read its answer, must not hold up the next agent.
        () = async { shutdown.cancelled().await; sleep(END_LIMIT).await } => Ok(()),
    }
}

async fn healthz(State(server): State<Server>) -> (StatusCode, String) {
    match hangs(&server) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => unavailable(format!("{why}\n")),
    }
}

/// That the control loop hangs, if it does: then what the parts have said is old.
fn hangs(server: &Server) -> Option<String> {
    let silent = server.reports.board.silent();
    let silent = (silent >= BEAT_LIMIT).then_some(silent.as_secs())?;
    Some(format!("the control loop has not come round for {silent} s"))
}

async fn readyz(State(server): State<Server>) -> (StatusCode, String) {
    let mut reasons = server.reports.board.reasons();
    reasons.extend(hangs(&server));
    if reasons.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    unavailable(reasons.iter().flat_map(|reason| [reason, "\n"]).collect())
}

async fn metrics(State(server): State<Server>) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPENMETRICS)], server.reports.metrics.encode())
}

async fn findings(State(server): State<Server>) -> String {
    server.reports.ledger.text()
}

async fn dump(State(server): State<Server>) -> Response {
    match ask(&server, Question::Dump).await {
        Ok(Ok(text)) => ([(MAPS_AT, server.maps_at.as_str())], text).into_response(),
        Ok(Err(error)) => failed(&error),
        Err(refused) => refused.into_response(),
    }
}

async fn plan(State(server): State<Server>) -> Response {
    match ask(&server, Question::Plan).await {
        Ok(text) => text.into_response(),
        Err(refused) => refused.into_response(),
    }
}

fn failed(error: &MapError) -> Response {
    let text = format!("failed to read the maps: {error}\n");
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

async fn ask<T>(
    server: &Server,
    question: impl FnOnce(oneshot::Sender<T>) -> Question,
) -> Result<T, (StatusCode, String)> {
    let (sender, answer) = oneshot::channel();
    server
        .asking
        .try_send(question(sender))
        .map_err(|_| unavailable("too many ask at once, or the agent ends; try again\n".to_owned()))?;
    match tokio::time::timeout(ANSWER_LIMIT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(unavailable("the agent ends\n".to_owned())),
        Err(_) => Err(unavailable(format!(
            "no answer from the control loop in {ANSWER_LIMIT:?}\n"
        ))),
    }
}

fn unavailable(text: String) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, text)
}
