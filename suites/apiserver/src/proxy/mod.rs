//! Faults in front of Kubernetes' API server, which has none of its own.
//!
//! ```text
//!  client ─TLS▶ Proxy ─▶ identity ─▶ faults: refuse, expire ─▶ server ─▶ watch: framed events ─▶ faults: bodies ─▶ client
//! ```
//!
//! Each connection of a client is one connection to the server, in the same protocol and with the server's own certificate. A
//! user with a client certificate is named to the server by the front proxy's headers; tokens are forwarded.
//!
//! Faults are those of [`crate::faults`], with two differences. Events are delayed from when they arrive, not from when they
//! were written. A watch that begins with the state but does not mark its end (no `sendInitialEvents`) sends nothing while
//! events are dropped, and gets 410 before its state. There is no [`Fault::Lag`], since there is no cache.
//!
//! Bounds: per watch one event and a mebibyte of delayed ones. Idle connections have keepalive probes.
//!
//! Files: this one (TLS, connections), `request` (one request), `identity` (users), `watch` and `frames` (events).

mod frames;
mod identity;
mod request;
mod watch;

use std::{io, net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use hyper::{
    Request,
    body::Incoming,
    client::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName,
        pem::{self, PemObject as _},
    },
    server::{VerifierBuilderError, WebPkiClientVerifier},
};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::{
    identity::Certified,
    request::{Connection, Upstream},
};
use crate::{
    faults::{Clients, Fault, FaultError, FaultGuard, Faults},
    serve::{self, ALIVE_INTERVAL, ALIVE_LIMIT, DRAIN_LIMIT, HANDSHAKE_LIMIT},
};

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Keys of a cluster, PEM, which kubeadm keeps in `/etc/kubernetes/pki`. Without `Debug`, as two are secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    /// The authority of servers and clients (`ca.crt`).
    pub authority: String,
    /// What the server serves with (`apiserver.crt`).
    pub certificate: String,
    /// Its key (`apiserver.key`).
    pub key: String,
    /// Certificate of a client that may name users (`front-proxy-client.crt`).
    pub front_certificate: String,
    /// Its key (`front-proxy-client.key`).
    pub front_key: String,
}

/// Errors of these keys.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// One is no PEM of its kind.
    #[error("expected the PEM of {what}: {source}")]
    Pem {
        /// Which.
        what: &'static str,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// They don't match.
    #[error("failed to set up TLS with the cluster's keys: {0}")]
    Tls(#[from] rustls::Error),
    /// The authority can't be used.
    #[error("failed to set up TLS with the cluster's authority: {0}")]
    Authority(#[from] VerifierBuilderError),
}

/// Applies faults to the clients of one API server.
pub struct Proxy {
    faults: Faults,
    acceptor: TlsAcceptor,
    /// Without a client certificate: tokens identify the user.
    anonymous: ClientConfig,
    /// As the front proxy.
    named: ClientConfig,
}

impl Proxy {
    /// One with the keys of a server.
    ///
    /// # Errors
    /// They are no keys, or not of one server.
    pub fn new(keys: &Keys) -> Result<Self, ProxyError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in chain("the authority", &keys.authority)? {
            roots.add(certificate)?;
        }
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?;
        let certificate = chain("the server's certificate", &keys.certificate)?;
        let key = key("the server's key", &keys.key)?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificate, key)?;
        server.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        let client = || {
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
            let builder = builder.with_safe_default_protocol_versions();
            builder.map(|builder| builder.with_root_certificates(Arc::clone(&roots)))
        };
        let front = chain("the front proxy's certificate", &keys.front_certificate)?;
        let front_key = self::key("the front proxy's key", &keys.front_key)?;
        Ok(Self {
            faults: Faults::new(),
            acceptor: TlsAcceptor::from(Arc::new(server)),
            anonymous: client()?.with_no_client_auth(),
            named: client()?.with_client_auth_cert(front, front_key)?,
        })
    }

    /// Begins a fault for some clients until the guard is dropped, also on open connections. Users are those of certificates
    /// and tokens. `system:node:NAME` is any user with a token for a pod of that node; `system:kube-controller-manager`
    /// includes its controllers and the scheduler. Administrators and kubelets are exempt, by their certificates.
    ///
    /// # Errors
    /// As [`Faults::begin`]; [`FaultError::NoCache`] for [`Fault::Lag`].
    pub fn begin(&self, clients: Clients, fault: Fault) -> Result<FaultGuard, FaultError> {
        if fault == Fault::Lag {
            return Err(FaultError::NoCache);
        }
        self.faults.begin(clients, fault)
    }

    /// Forwards between a client that has just connected and the server until one of them ends.
    ///
    /// # Errors
    /// The connection failed, for example by a certificate of another authority.
    pub async fn pass(&self, client: TcpStream, server: TcpStream) -> io::Result<()> {
        let (source, address) = (client.peer_addr()?, server.peer_addr()?);
        for stream in [&client, &server] {
            // Watch events are small and must not wait for more.
            stream.set_nodelay(true)?;
            serve::detect_dead_peer(stream)?;
        }
        let accepted = timeout(HANDSHAKE_LIMIT, self.acceptor.accept(client)).await;
        let client = accepted??;
        let (_, session) = client.get_ref();
        let certified = session.peer_certificates().and_then(<[_]>::first);
        let certified = certified.map(|der| Certified::read(der)).transpose();
        let certified = certified.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        let is_http2 = session.alpn_protocol() == Some(HTTP2);
        let connecting = self.connect(server, address, certified.is_some(), is_http2);
        let (upstream, mut driver) = timeout(HANDSHAKE_LIMIT, connecting).await??;
        let is_exempt = certified.as_ref().is_some_and(Certified::is_exempt);
        let ended = CancellationToken::new();
        let _ending = ended.clone().drop_guard();
        let faults = if is_exempt {
            Faults::new()
        } else {
            self.faults.clone()
        };
        let source = source.ip().to_canonical();
        let connection = Arc::new(Connection::new(faults, upstream, certified, source, ended));
        let answering = Arc::clone(&connection);
        let service = service_fn(move |request: Request<Incoming>| {
            let connection = Arc::clone(&answering);
            async move { connection.answer(request).await }
        });
        let builder = serve::builder();
        let builder = if is_http2 {
            builder.http2_only()
        } else {
            builder.http1_only()
        };
        let serving = builder.serve_connection_with_upgrades(TokioIo::new(client), service);
        tokio::pin!(serving);
        let served = tokio::select! {
            served = serving.as_mut() => Some(served),
            // The server has closed it, or it was upgraded.
            _ = &mut driver => {
                serving.as_mut().graceful_shutdown();
                timeout(DRAIN_LIMIT, serving).await.ok()
            }
        };
        connection.tunnels_have_ended().await;
        match served {
            Some(Err(error)) => Err(io::Error::other(error)),
            _ => Ok(()),
        }
    }

    async fn connect(
        &self,
        server: TcpStream,
        address: SocketAddr,
        is_named: bool,
        is_http2: bool,
    ) -> io::Result<(Upstream, AbortOnDropHandle<()>)> {
        let mut config = if is_named {
            self.named.clone()
        } else {
            self.anonymous.clone()
        };
        config.alpn_protocols = vec![if is_http2 { HTTP2.to_vec() } else { HTTP1.to_vec() }];
        let name = ServerName::IpAddress(address.ip().into());
        let connector = TlsConnector::from(Arc::new(config));
        let stream: TlsStream<TcpStream> = connector.connect(name, server).await?;
        let stream = TokioIo::new(stream);
        let drive = |driving: BoxFuture<'static, hyper::Result<()>>| {
            AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(error) = driving.await {
                    tracing::debug!(%address, %error, "the connection to an API server broke");
                }
            }))
        };
        if is_http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .keep_alive_interval(ALIVE_INTERVAL)
                .keep_alive_timeout(ALIVE_LIMIT);
            let (sender, driving) = builder.handshake(stream).await.map_err(io::Error::other)?;
            return Ok((Upstream::Http2(sender), drive(Box::pin(driving))));
        }
        let (sender, driving) = http1::handshake(stream).await.map_err(io::Error::other)?;
        Ok((
            Upstream::Http1(sender.into()),
            drive(Box::pin(driving.with_upgrades())),
        ))
    }
}

fn chain(what: &'static str, text: &str) -> Result<Vec<CertificateDer<'static>>, ProxyError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|source| ProxyError::Pem { what, source })?;
    if all.is_empty() {
        let source = pem::Error::NoItemsFound;
        return Err(ProxyError::Pem { what, source });
    }
    Ok(all)
}

fn key(what: &'static str, text: &str) -> Result<PrivateKeyDer<'static>, ProxyError> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|source| ProxyError::Pem { what, source })
}
