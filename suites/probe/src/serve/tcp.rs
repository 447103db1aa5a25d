//! One TCP port of a server.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use super::{CONNECTION_LIMIT, KEEP_LIMIT, Mode, Shared};
use crate::wire::{self, Request};

/// Connections that the kernel keeps until they are accepted; it lowers this to `net.core.somaxconn`.
const BACKLOG: u32 = 1024;
/// After a failed accept, which is nearly always a lack of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    number: u16,
}

impl Port {
    /// At an IPv6 address, `only_ipv6` leaves IPv4 to another socket of the same port.
    pub(super) fn bind(address: SocketAddr, only_ipv6: bool) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            let socket = TcpSocket::new_v6()?;
            setsockopt(&socket, sockopt::Ipv6V6Only, &only_ipv6)?;
            socket
        };
        // A restarted container takes its port back from connections in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let number = listener.local_addr()?.port();
        Ok(Self { listener, number })
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
                        let answer = answer(stream, source, self.number, &shared);
                        // A connection that breaks is the client's to report: it sees more of it.
                        drop(stop.run_until_cancelled(answer).await);
                        drop(permit);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    }
}

/// One request, one answer, and again on a connection that is kept; whoever says something else, or nothing, gets no word.
async fn answer(stream: TcpStream, source: SocketAddr, port: u16, shared: &Shared) -> io::Result<()> {
    let destination = stream.local_addr()?;
    match shared.mode {
        Mode::Refuse => return stream.set_zero_linger(),
        Mode::HalfClose => return timeout(CONNECTION_LIMIT, half_close(stream)).await?,
        Mode::Prompt | Mode::Slow(_) => {}
    }
    let mut stream = BufReader::new(stream);
    let mut limit = CONNECTION_LIMIT;
    while let Some(Request { nonce, keep }) = timeout(limit, request(&mut stream)).await?? {
        if let Mode::Slow(wait) = shared.mode {
            tokio::time::sleep(wait).await;
        }
        let Some(answer) = shared.answer("TCP", port, source, destination, nonce) else {
            return Ok(());
        };
        timeout(CONNECTION_LIMIT, stream.get_mut().write_all(&wire::line(&answer))).await??;
        if !keep {
            break;
        }
        limit = KEEP_LIMIT;
    }
    stream.get_mut().shutdown().await
}

async fn request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = Vec::new();
    stream
        .take(wire::MAX_REQUEST as u64)
        .read_until(b'\n', &mut line)
        .await?;
    Ok(wire::parse(&line))
}

/// Says nothing more, and reads until the client has ended too.
async fn half_close(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut buffer = [0; wire::MAX_REQUEST];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}
