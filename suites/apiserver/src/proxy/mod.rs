//! Faults in front of an API server that has none of its own: Kubernetes'.
//!
//! ```text
//!  client ─TLS▶ Proxy ─▶ identity ─▶ faults: refuse, expire ─▶ server ─▶ watch: framed events ─▶ faults: bodies ─▶ client
//! ```
//!
//! One connection of a client is one of the server's, in the same protocol, and ends with it: a client sees no more of this
//! than of a balancer of connections. It serves with the server's own certificate. Whoever has shown a certificate of the
//! cluster is named to the server by the front proxy's headers; whoever has a token is passed on with it.
//!
//! What faults are is [`crate::faults`]'s matter; two things differ here. Events are late from when they come, not from
//! when they were written. A watch that begins with the state but does not mark its end (no `sendInitialEvents`) shows nothing
//! while events are lost, and is told 410 before its state. There is no [`Fault::Lag`]: nothing here has a cache.
//!
//! Bounds: per watch one event and a mebibyte of late ones; a connection that is quiet is asked whether its peer lives.
//!
//! Files: this one (TLS, connections), `request` (one request), `identity` (who asks), `watch` and `frames` (events).

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

/// What a proxy needs of a cluster, PEM: kubeadm keeps it in `/etc/kubernetes/pki`. It has no `Debug`, as two are secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    /// The authority of servers and clients (`ca.crt`).
    pub authority: String,
    /// What the server serves with (`apiserver.crt`).
    pub certificate: String,
    /// Its key (`apiserver.key`).
    pub key: String,
    /// By which it believes whom others name (`front-proxy-client.crt`).
    pub front_certificate: String,
    /// Its key (`front-proxy-client.key`).
    pub front_key: String,
}

/// Why there is no proxy with these keys.
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
    /// They don't belong together.
    #[error("failed to set up TLS with the cluster's keys: {0}")]
    Tls(#[from] rustls::Error),
    /// The authority is none.
    #[error("failed to set up TLS with the cluster's authority: {0}")]
    Authority(#[from] VerifierBuilderError),
}

/// What lets faults meet the clients of one API server.
pub struct Proxy {
    faults: Faults,
    acceptor: TlsAcceptor,
    /// As nobody: a token says who asks.
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

    /// Lets something go wrong for some of its clients until the guard is dropped, also for those whose connections are
    /// under way here. Users are those of certificates and tokens; `system:node:NAME` is who has a token for a pod of that
    /// node, `system:kube-controller-manager` also its controllers and the scheduler. Administrators and kubelets, by their
    /// certificates, meet none.
    ///
    /// # Errors
    /// As [`Faults::begin`]; [`FaultError::NoCache`] for [`Fault::Lag`].
    pub fn begin(&self, clients: Clients, fault: Fault) -> Result<FaultGuard, FaultError> {
        if fault == Fault::Lag {
            return Err(FaultError::NoCache);
        }
        self.faults.begin(clients, fault)
    }

    /// Passes on between a client that has just connected and its server, until one of them ends.
    ///
    /// # Errors
    /// No connection came about, such as by a certificate of another authority.
    pub async fn pass(&self, client: TcpStream, server: TcpStream) -> io::Result<()> {
        let (source, address) = (client.peer_addr()?, server.peer_addr()?);
        for stream in [&client, &server] {
            // Watch events are small and must not wait for more.
            stream.set_nodelay(true)?;
            serve::notice_death(stream)?;
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
        let is_spared = certified.as_ref().is_some_and(Certified::is_spared);
        let ended = CancellationToken::new();
        let _ending = ended.clone().drop_guard();
        let faults = if is_spared {
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
            // The server has ended it, or it has become another protocol's.
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
