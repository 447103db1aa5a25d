//! The agent's HTTP endpoints: health, readiness, metrics, findings, and what the maps hold.
//!
//! # Bounds
//! [`ANSWER_LIMIT`] for an answer of the control loop; a few [`Question`]s at once, more are refused.

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

use crate::{maps::MapError, readiness::ROUND_LIMIT, reports::Reports};

/// Time after which a question to the control loop is given up.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Header of `/dump`: the maps' folder, which tells agents of one machine apart.
pub const MAPS_AT: &str = "plumbline-maps-at";
/// How long clients may delay the end of the process: a scrape takes less.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Media type of `/metrics`.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A request for what only the control loop may read. It is answered between two rounds, when everything begun is
/// written.
#[derive(Debug)]
pub enum Question {
    /// The maps as text.
    Dump(oneshot::Sender<Result<String, MapError>>),
    /// The plan of everything, from scratch, as text.
    Plan(oneshot::Sender<String>),
}

/// What answers are made of.
#[derive(Clone, Debug)]
pub struct Server {
    /// Reports of all modules.
    pub reports: Reports,
    /// To the control loop.
    pub questions: mpsc::Sender<Question>,
    /// The maps' folder.
    pub maps_at: String,
}

/// Serves until `shutdown`:
///
/// | path | answer |
/// |---|---|
/// | `/healthz` | 200 while the control loop runs, whatever the API server does; otherwise 503 |
/// | `/readyz` | 200 if the node is ready: programs attached and alone, everything listed and written, and the agent's own probe answered; otherwise 503 with one reason in each line |
/// | `/metrics` | counters and gauges, as METRICS.md names them (OpenMetrics) |
/// | `/findings` | findings about objects, one line each |
/// | `/dump` | the maps as text, as `reference-agent dump` prints them |
/// | `/plan` | in the same form, the plan from scratch |
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
        // A client that does not end its request, or does not read its answer, must not delay the next agent.
        () = async { shutdown.cancelled().await; sleep(END_LIMIT).await } => Ok(()),
    }
}

async fn healthz(State(server): State<Server>) -> (StatusCode, String) {
    match hangs(&server) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => unavailable(format!("{why}\n")),
    }
}

/// Reason that the control loop hangs, if it does: all other reasons are out of date then.
fn hangs(server: &Server) -> Option<String> {
    let since = server.reports.readiness.since_round();
    let seconds = (since >= ROUND_LIMIT).then_some(since.as_secs())?;
    Some(format!("the control loop has not come round for {seconds} s"))
}

async fn readyz(State(server): State<Server>) -> (StatusCode, String) {
    let mut reasons = server.reports.readiness.reasons();
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
        .questions
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
