//! One connection to an API server, by whichever address answers first.
//!
//! As RFC 8305 (5) has it for the addresses of one name: they are tried in order, the next one as soon as one has
//! failed, or after [`STAGGER`] while it has neither failed nor answered; the first whose certificate is right wins. An
//! address at which packets vanish costs a fraction of a second, and one at which somebody else answers costs nothing
//! and learns nothing: no request is sent before the certificate is right.

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

/// One address that has not answered in this time, certificate and all, is given up.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// From one try to the next, if the first has neither failed nor answered (RFC 8305, 5: 250 ms).
pub const STAGGER: Duration = Duration::from_millis(250);

/// No address answered.
#[derive(Debug, thiserror::Error)]
#[error("no API server answers: {}", said.join("; "))]
pub(super) struct Unanswered {
    /// Of each address what happened.
    pub(super) said: Vec<String>,
}

/// Whom to expect.
#[derive(Clone)]
pub(super) struct Security {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

/// What hyper asks for connections.
#[derive(Clone)]
pub(super) struct Dialler {
    servers: ApiServers,
    /// `None`: without TLS.
    security: Option<Security>,
}

impl Dialler {
    pub(super) fn new(servers: ApiServers, security: Option<Security>) -> Self {
        Self { servers, security }
    }

    async fn dial(self) -> Result<Talk, Unanswered> {
        let candidates = self.servers.candidates().await;
        let mut waiting = candidates.into_iter();
        let mut trying = FuturesUnordered::new();
        let mut said = Vec::new();
        if let Some(first) = waiting.next() {
            trying.push(self.attempt(first));
        }
        while !trying.is_empty() {
            tokio::select! {
                Some((address, tried)) = trying.next() => match tried {
                    Ok(stream) => {
                        self.servers.answered(address);
                        return Ok(Talk::new(stream, address, self.servers.clone()));
                    }
                    Err(error) => {
                        said.push(format!("{address}: {error}"));
                        trying.extend(waiting.next().map(|next| self.attempt(next)));
                    }
                },
                () = sleep(STAGGER), if waiting.len() > 0 => {
                    trying.extend(waiting.next().map(|next| self.attempt(next)));
                }
            }
        }
        self.servers.unanswered(&said);
        Err(Unanswered { said })
    }

    fn attempt(&self, address: SocketAddr) -> BoxFuture<'static, (SocketAddr, io::Result<Stream>)> {
        let security = self.security.clone();
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
            match security {
                None => Ok(Either::Left(stream)),
                Some(Security { connector, name }) => {
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
    type Response = TokioIo<Talk>;
    type Error = Unanswered;
    type Future = BoxFuture<'static, Result<Self::Response, Unanswered>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.clone().dial().map(|talk| talk.map(TokioIo::new)).boxed()
    }
}

type Stream = Either<TcpStream, tokio_rustls::client::TlsStream<TcpStream>>;

/// A connection. One that was asked something, and ends without having said anything, speaks against its address:
/// something accepts there, and is no API server, or one that hangs. One that nobody asked is only one too many.
pub(super) struct Talk {
    stream: Stream,
    address: SocketAddr,
    servers: ApiServers,
    asked: bool,
    heard: bool,
}

impl Talk {
    fn new(stream: Stream, address: SocketAddr, servers: ApiServers) -> Self {
        Self {
            stream,
            address,
            servers,
            asked: false,
            heard: false,
        }
    }
}

impl Connection for Talk {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Talk {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if !self.heard && buffer.filled().len() > before {
            self.heard = true;
            self.servers.spoke(self.address);
        }
        read
    }
}

impl AsyncWrite for Talk {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.asked = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if self.asked && !self.heard {
            self.servers.silent(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    #[tokio::test]
    async fn only_a_connection_that_was_asked_something_speaks_against_its_address_by_its_silence() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let other = SocketAddr::from(([192, 0, 2, 1], 6443));
        let url = |address: SocketAddr| format!("https://{address}").parse().expect("a URL");
        let config = kube::Config::new(url(address));
        let servers = ApiServers::new(&config, &[url(other)], None)
            .await
            .expect("servers");
        let talk = async || {
            let stream = TcpStream::connect(address).await.expect("accepted");
            Talk::new(Either::Left(stream), address, servers.clone())
        };
        drop(talk().await);
        assert_eq!(servers.candidates().await, [address, other]);
        talk().await.write_all(b"GET").await.expect("written");
        assert_eq!(servers.candidates().await, [other, address], "asked, and silent");
    }
}
