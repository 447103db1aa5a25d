//! One connection to an API server, at the first address that answers.
//!
//! As in RFC 8305 (5), addresses are tried in order: the next one as soon as one has failed, or after [`STAGGER`] without
//! failure or answer. The first one with a valid certificate wins. An address that drops packets costs a fraction of a
//! second. Another server at an address gets no request, as the certificate is verified first.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;

use super::{
    client::{KEEPALIVE, UNACKNOWLEDGED},
    servers::ApiServers,
};

/// Time limit for one address, TLS included.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Time between two tries without failure or answer (RFC 8305, 5: 250 ms).
pub const STAGGER: Duration = Duration::from_millis(250);

/// No address answered.
#[derive(Debug, thiserror::Error)]
#[error("no API server answers: {}", errors.join("; "))]
pub(super) struct Unanswered {
    /// The error of each address.
    pub(super) errors: Vec<String>,
}

/// The TLS configuration, and the name that certificates must have.
#[derive(Clone)]
pub(super) struct ServerTls {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

/// hyper's connector.
#[derive(Clone)]
pub(super) struct Dialler {
    servers: ApiServers,
    /// `None`: without TLS.
    tls: Option<ServerTls>,
}

impl Dialler {
    pub(super) fn new(servers: ApiServers, tls: Option<ServerTls>) -> Self {
        Self { servers, tls }
    }

    async fn dial(self) -> Result<ApiConnection, Unanswered> {
        let candidates = self.servers.candidates().await;
        let mut waiting = candidates.into_iter();
        let mut trying = FuturesUnordered::new();
        let mut errors = Vec::new();
        if let Some(first) = waiting.next() {
            trying.push(self.attempt(first));
        }
        while !trying.is_empty() {
            tokio::select! {
                Some((address, tried)) = trying.next() => match tried {
                    Ok(stream) => {
                        self.servers.answered(address);
                        return Ok(ApiConnection::new(stream, address, self.servers.clone()));
                    }
                    Err(error) => {
                        errors.push(format!("{address}: {error}"));
                        trying.extend(waiting.next().map(|next| self.attempt(next)));
                    }
                },
                () = sleep(STAGGER), if waiting.len() > 0 => {
                    trying.extend(waiting.next().map(|next| self.attempt(next)));
                }
            }
        }
        self.servers.unanswered(&errors);
        Err(Unanswered { errors })
    }

    fn attempt(&self, address: SocketAddr) -> BoxFuture<'static, (SocketAddr, io::Result<Stream>)> {
        let tls = self.tls.clone();
        let connect = async move {
            let stream = TcpStream::connect(address).await?;
            let socket = SockRef::from(&stream);
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE)
                .with_interval(KEEPALIVE / 3)
                .with_retries(3);
            socket.set_tcp_keepalive(&keepalive)?;
            match tls {
                None => Ok(Either::Left(stream)),
                Some(ServerTls { connector, name }) => {
                    Ok(Either::Right(connector.connect(name, stream).await?))
                }
            }
        };
        async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {CONNECT_LIMIT:?}"));
            let tried = timeout(CONNECT_LIMIT, connect).await;
            (address, tried.unwrap_or_else(|_| Err(late())))
        }
        .boxed()
    }
}

impl tower::Service<Uri> for Dialler {
    type Response = TokioIo<ApiConnection>;
    type Error = Unanswered;
    type Future = BoxFuture<'static, Result<Self::Response, Unanswered>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.clone()
            .dial()
            .map(|dialled| dialled.map(TokioIo::new))
            .boxed()
    }
}

type Stream = Either<TcpStream, tokio_rustls::client::TlsStream<TcpStream>>;

/// A connection. If a request was sent on it and it ends without a byte of an answer, its address is tried last from then
/// on: a server that hangs, or no API server, accepts there.
pub(super) struct ApiConnection {
    stream: Stream,
    address: SocketAddr,
    servers: ApiServers,
    has_request: bool,
    has_answer: bool,
}

impl ApiConnection {
    fn new(stream: Stream, address: SocketAddr, servers: ApiServers) -> Self {
        Self {
            stream,
            address,
            servers,
            has_request: false,
            has_answer: false,
        }
    }
}

impl Connection for ApiConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for ApiConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if !self.has_answer && buffer.filled().len() > before {
            self.has_answer = true;
            self.servers.has_sent(self.address);
        }
        read
    }
}

impl AsyncWrite for ApiConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_request = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for ApiConnection {
    fn drop(&mut self) {
        if self.has_request && !self.has_answer {
            self.servers.was_silent(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    #[tokio::test]
    async fn only_silence_after_a_request_moves_an_address_to_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let other = SocketAddr::from(([192, 0, 2, 1], 6443));
        let url = |address: SocketAddr| format!("https://{address}").parse().expect("a URL");
        let config = kube::Config::new(url(address));
        let servers = ApiServers::new(&config, &[url(other)], None)
            .await
            .expect("servers");
        let connection = async || {
            let stream = TcpStream::connect(address).await.expect("accepted");
            ApiConnection::new(Either::Left(stream), address, servers.clone())
        };
        drop(connection().await);
        assert_eq!(servers.candidates().await, [address, other]);
        connection().await.write_all(b"GET").await.expect("written");
        assert_eq!(
            servers.candidates().await,
            [other, address],
            "silent after a request"
        );
    }
}
