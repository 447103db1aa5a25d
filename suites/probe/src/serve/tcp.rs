//! One port of a server that accepts connections, of TCP or SCTP, with a line or HTTP.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{CONNECTION_LIMIT, KEEP_LIMIT, Mode, Shared};
use crate::{
    http::{self, Requested},
    stream::{self, Protocol},
    transfer,
    wire::{self, Request},
};

/// Connections that the kernel keeps until they are accepted; it lowers this to `net.core.somaxconn`.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept, nearly always because no file descriptor is left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Limit of a transfer in each direction: the client's is shorter.
const TRANSFER_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    protocol: Protocol,
    number: u16,
}

/// A connection, and the addresses in its answers.
struct Connection {
    stream: BufReader<TcpStream>,
    protocol: Protocol,
    port: u16,
    source: SocketAddr,
    destination: SocketAddr,
}

impl Port {
    /// On an IPv6 address, `only_ipv6` leaves IPv4 to another socket of the same port.
    pub(super) fn bind(protocol: Protocol, address: SocketAddr, only_ipv6: bool) -> io::Result<Self> {
        let socket = stream::socket(protocol, address)?;
        if address.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6V6Only, &only_ipv6)?;
        }
        // A restarted container must be able to bind its port while connections are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let number = listener.local_addr()?.port();
        Ok(Self {
            listener,
            protocol,
            number,
        })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) async fn serve(self, shared: Arc<Shared>) {
        let stop = shared.stop.clone();
        stop.run_until_cancelled(self.accept(shared)).await;
    }

    async fn accept(self, shared: Arc<Shared>) {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = shared.connections.clone().acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, source)) => {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        let stop = shared.stop.clone();
                        let answer = answer(stream, source, self.protocol, self.number, &shared);
                        // The client reports a broken connection: it sees more of it.
                        drop(stop.run_until_cancelled(answer).await);
                        drop(permit);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    }
}

/// One request, one answer, and again on a connection that is kept; anything else, or nothing, gets no answer.
async fn answer(
    stream: TcpStream,
    source: SocketAddr,
    protocol: Protocol,
    port: u16,
    shared: &Shared,
) -> io::Result<()> {
    match shared.mode {
        Mode::Refuse => return stream.set_zero_linger(),
        Mode::HalfClose => return timeout(CONNECTION_LIMIT, half_close(stream)).await?,
        Mode::Prompt | Mode::Slow(_) => {}
    }
    let mut connection = Connection {
        destination: stream.local_addr()?,
        stream: BufReader::new(stream),
        protocol,
        port,
        source,
    };
    let mut limit = CONNECTION_LIMIT;
    while let Some(requested) = timeout(limit, connection.request()).await?? {
        if let Mode::Slow(wait) = shared.mode {
            tokio::time::sleep(wait).await;
        }
        let transfer = requested.transfer();
        if let Some((nonce, upload, _)) = &transfer {
            let received = transfer::receive(&mut connection.stream, nonce, *upload);
            // What did not arrive as it was sent is no request.
            if timeout(TRANSFER_LIMIT, received).await?? != *upload {
                return Ok(());
            }
        }
        let Some((response, keep)) = connection.respond(requested, shared) else {
            return Ok(());
        };
        timeout(CONNECTION_LIMIT, connection.stream.get_mut().write_all(&response)).await??;
        if let Some((nonce, _, download)) = &transfer {
            let sent = transfer::send(connection.stream.get_mut(), nonce, *download);
            timeout(TRANSFER_LIMIT, sent).await??;
        }
        if !keep {
            break;
        }
        limit = KEEP_LIMIT;
    }
    connection.stream.get_mut().shutdown().await
}

/// Received bytes of a connection.
enum Incoming {
    Line(Request),
    Http(Requested),
}

impl Incoming {
    /// The nonce, and bytes of a transfer in each direction, if it is one.
    fn transfer(&self) -> Option<(String, u32, u32)> {
        match self {
            Self::Line(request) if request.upload > 0 || request.download > 0 => {
                Some((request.nonce.clone(), request.upload, request.download))
            }
            Self::Line(_) | Self::Http(_) => None,
        }
    }
}

impl Connection {
    /// The next request; `None` if what arrives is none, or the connection ends.
    async fn request(&mut self) -> io::Result<Option<Incoming>> {
        let mut text = Vec::new();
        self.read_line(&mut text, wire::MAX_REQUEST).await?;
        if !http::begins(&text) {
            return Ok(wire::parse(&text).map(Incoming::Line));
        }
        while !text.ends_with(b"\r\n\r\n") {
            let before = text.len();
            self.read_line(&mut text, http::MAX_HEAD.saturating_sub(before))
                .await?;
            if text.len() == before {
                return Ok(None);
            }
        }
        Ok(http::parse(&text).map(Incoming::Http))
    }

    async fn read_line(&mut self, text: &mut Vec<u8>, longest: usize) -> io::Result<usize> {
        (&mut self.stream)
            .take(longest as u64)
            .read_until(b'\n', text)
            .await
    }

    /// The response, logged, and whether the connection is kept; `None` if it cannot be logged.
    fn respond(&self, incoming: Incoming, shared: &Shared) -> Option<(Vec<u8>, bool)> {
        let answer = |nonce| {
            let protocol = self.protocol.name();
            shared.answer(protocol, self.port, self.source, self.destination, nonce)
        };
        Some(match incoming {
            Incoming::Line(Request { nonce, keep, .. }) => (wire::line(&answer(nonce)?), keep),
            Incoming::Http(Requested::Identity(Request { nonce, keep, .. })) => {
                let body = wire::line(&answer(nonce)?);
                (http::response("200 OK", keep, &body), keep)
            }
            Incoming::Http(Requested::Ready { keep }) => {
                let is_ready = shared.is_ready.load(Ordering::Relaxed);
                let status = if is_ready {
                    "200 OK"
                } else {
                    "503 Service Unavailable"
                };
                let body = wire::line(&serde_json::json!({ "ready": is_ready }));
                (http::response(status, keep, &body), keep)
            }
        })
    }
}

/// Ends its half, and reads until the client has ended too.
async fn half_close(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut buffer = [0; wire::MAX_REQUEST];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}
