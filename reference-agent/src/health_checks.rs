//! Health check node ports, by which a cloud's load balancer finds nodes with endpoints of a Service with
//! `externalTrafficPolicy: Local`.
//!
//! ```text
//! control loop ─▶ Wanted ─▶ serve: one listener each ─▶ 200 with endpoints here, otherwise 503
//!                              └─▶ ledger: a port that can't be bound
//! ```
//!
//! A connection is answered once and closed. Without an agent the port is closed, which is unhealthy for a load balancer:
//! the endpoints are not up to date then.
//!
//! # Bounds
//! One listener for each Service that has such a port; [`CONNECTIONS`] at once for each, more wait in the kernel;
//! [`ANSWER_LIMIT`] for a connection; a port that can't be bound is tried again every [`RETRY`].

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use http::{
    Response, StatusCode,
    header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use socket2::{Domain, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::{AbortHandle, JoinSet},
};

use crate::{
    findings::{Finding, Reason},
    ledger::{Origin, Subject},
    model::Kind,
    names::ObjectName,
    plan::HealthCheck,
    reports::Reports,
};

/// Most connections at once, for each port.
pub const CONNECTIONS: usize = 64;
/// Time limit for one connection.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Time between two tries to bind a port.
pub const RETRY: Duration = Duration::from_secs(5);
/// Connections that wait in the kernel.
const BACKLOG: i32 = 128;
/// Header with the number of endpoints on this node, as a weight for load balancers (KEP-1669, kube-proxy).
const WEIGHT: &str = "x-load-balancing-endpoint-weight";

/// The wanted health checks.
pub type Wanted = BTreeMap<ObjectName, HealthCheck>;

/// Serves the wanted health checks until the sender is dropped; then the ports are closed.
pub async fn serve(mut wanted: watch::Receiver<Wanted>, reports: Reports) {
    let mut tasks = JoinSet::new();
    let mut served: BTreeMap<ObjectName, Served> = BTreeMap::new();
    let mut refused: BTreeMap<ObjectName, u16> = BTreeMap::new();
    loop {
        let now = wanted.borrow_and_update().clone();
        served.retain(|name, server| {
            let stays = now.get(name).is_some_and(|check| check.port == server.port);
            if !stays {
                tracing::info!(service = %name, port = server.port, "its health check node port is closed");
            }
            stays
        });
        refused.retain(|name, port| {
            let stays = now.get(name).is_some_and(|check| check.port == *port);
            if !stays {
                reports.ledger.set(subject(name), Origin::HealthCheck, Vec::new());
            }
            stays
        });
        for (name, HealthCheck { port, .. }) in &now {
            if served.contains_key(name) {
                continue;
            }
            match listen(*port) {
                Ok(listener) => {
                    tracing::info!(service = %name, port, "its health check node port is served");
                    if refused.remove(name).is_some() {
                        reports.ledger.set(subject(name), Origin::HealthCheck, Vec::new());
                    }
                    let answerer = Answerer {
                        name: name.clone(),
                        wanted: wanted.clone(),
                        reports: reports.clone(),
                    };
                    let task = tasks.spawn(accept(listener, Arc::new(answerer)));
                    served.insert(name.clone(), Served { port: *port, task });
                }
                Err(error) => {
                    refused.insert(name.clone(), *port);
                    let message = format!("spec.healthCheckNodePort: {port} can't be served: {error}");
                    let reason = Reason::NotWritten;
                    reports.ledger.set(
                        subject(name),
                        Origin::HealthCheck,
                        vec![Finding { reason, message }],
                    );
                }
            }
        }
        let count = i64::try_from(served.len()).unwrap_or(i64::MAX);
        reports.metrics.health_check_servers.at([]).set(count);
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY), if !refused.is_empty() => {}
            // A closed port's task.
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// A listener. Dropping it closes it; open connections are still answered.
struct Served {
    port: u16,
    task: AbortHandle,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn subject(name: &ObjectName) -> Subject {
    Subject::Object(Kind::Service, name.clone())
}

/// Listens at all addresses of both families, or of IPv4 alone on a machine without IPv6.
fn listen(port: u16) -> std::io::Result<TcpListener> {
    let both = || {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
        socket.set_only_v6(false)?;
        bind(socket, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
    };
    match both() {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            bind(socket, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        }
        listening => listening,
    }
}

fn bind(socket: Socket, address: SocketAddr) -> std::io::Result<TcpListener> {
    // Connections of an earlier agent may linger.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

async fn accept(listener: TcpListener, answerer: Arc<Answerer>) {
    const FAILED: Duration = Duration::from_millis(100);
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let answerer = Arc::clone(&answerer);
                tokio::spawn(async move {
                    // A client without a request in time gets no answer.
                    let _slow = tokio::time::timeout(ANSWER_LIMIT, answer(stream, answerer)).await;
                    drop(permit);
                });
            }
            // No file descriptor is left, or the client is gone.
            Err(_) => tokio::time::sleep(FAILED).await,
        }
    }
}

async fn answer(stream: TcpStream, answerer: Arc<Answerer>) {
    let service = service_fn(|_| std::future::ready(Ok::<_, Infallible>(answerer.answer())));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::trace!(%error, "a health check was broken off");
    }
}

/// What one port answers.
struct Answerer {
    name: ObjectName,
    wanted: watch::Receiver<Wanted>,
    reports: Reports,
}

impl Answerer {
    fn answer(&self) -> Response<Body> {
        let check = self.wanted.borrow().get(&self.name).copied();
        let endpoints = check.map_or(0, |check| check.local_endpoints);
        let healthy = self.reports.readiness.is_healthy();
        let code = if healthy && endpoints > 0 {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        self.reports
            .metrics
            .health_check_answers
            .at([code.as_str()])
            .inc();
        let body = json!({
            "service": {"namespace": &*self.name.namespace, "name": &*self.name.name},
            "localEndpoints": endpoints,
            "serviceProxyHealthy": healthy,
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
        headers.insert(WEIGHT, http::HeaderValue::from(endpoints));
        response
    }
}
