//! Connections: accept, TLS, HTTP/1.1 and HTTP/2, an orderly end.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Auth,
    faults::Faults,
    http::{self, Api},
    store::Store,
};

/// A client that does not finish its TLS handshake or its request headers in this time is dropped.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Requests under way at a shutdown have this long; watches end at once.
pub(crate) const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Requests at once on one HTTP/2 connection (Go's and upstream's default).
const MOST_STREAMS: u32 = 100;
/// Interval of keepalive probes on an idle connection …
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// … which is closed after this time without an answer or acknowledgement.
pub(crate) const ALIVE_LIMIT: Duration = Duration::from_secs(30);
/// After a failed accept (descriptors used up) the next try waits this long.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener can't be used by this runtime.
    #[error("failed to take over the listening socket: {0}")]
    Listener(#[from] std::io::Error),
    /// Serving panicked.
    #[error("serving ended early: {0}")]
    Ended(#[source] tokio::task::JoinError),
}

/// Serves the API on a listener until `shutdown`, then drains for at most two seconds.
///
/// The listener may belong to another network namespace than the caller's. When this returns, the port is
/// free and every connection of this server is closed; the store and its other servers go on. It advertises nothing; see
/// [`Replica`](crate::Replica) for one that does.
///
/// # Errors
/// The listener can't be registered. Failing connections are only logged.
pub async fn serve(
    store: Store,
    listener: std::net::TcpListener,
    tls: Arc<rustls::ServerConfig>,
    auth: Arc<Auth>,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    run(store, listener, tls, auth, Faults::new(), shutdown).await
}

/// Serves like [`serve()`], with faults.
pub(crate) async fn run(
    store: Store,
    listener: std::net::TcpListener,
    tls: Arc<rustls::ServerConfig>,
    auth: Arc<Auth>,
    faults: Faults,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(store.config().connections));
    // Sessions in pods are tasks of their own; they end with this one, even if it is dropped.
    let ended = CancellationToken::new();
    let _ending = ended.clone().drop_guard();
    let api = Api::new(store, auth, faults, shutdown.clone(), ended);
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    loop {
        // Finished connections are collected here, so that the set stays as small as what is open.
        while connections.try_join_next().is_some() {}
        let permit = tokio::select! {
            () = shutdown.cancelled() => break,
            permit = Arc::clone(&slots).acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (api, acceptor, shutdown) = (api.clone(), acceptor.clone(), shutdown.clone());
                connections.spawn(async move {
                    connection(api, acceptor, stream, peer, shutdown).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
        connections.shutdown().await;
    }
    Ok(())
}

async fn connection(
    api: Api,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    shutdown: CancellationToken,
) {
    // Watch events are small and must not wait for more.
    if let Err(error) = stream.set_nodelay(true).and_then(|()| detect_dead_peer(&stream)) {
        tracing::debug!(%peer, %error, "failed to set options of a connection");
    }
    let stream = match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "failed to shake hands"),
        Err(_) => return tracing::debug!(%peer, "no TLS handshake in time"),
    };
    if let Err(error) = answer(api, stream, peer.ip(), shutdown).await {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// Answers the requests of a connection until it ends, or until those under way at `shutdown` have been answered.
pub(crate) async fn answer(
    api: Api,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    source: IpAddr,
    shutdown: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let service = service_fn(move |request: Request<Incoming>| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(api.answer(http::sent(request), source).await) }
    });
    let builder = builder();
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    }
}

/// Protocol settings of every client connection.
pub(crate) fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_LIMIT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .keep_alive_interval(ALIVE_INTERVAL)
        .keep_alive_timeout(ALIVE_LIMIT);
    builder
}

/// Lets TCP detect a client whose network namespace is gone, which closes no connection.
pub(crate) fn detect_dead_peer(stream: &TcpStream) -> std::io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(ALIVE_INTERVAL)
        .with_interval(ALIVE_LIMIT / 3)
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(ALIVE_LIMIT))
}
