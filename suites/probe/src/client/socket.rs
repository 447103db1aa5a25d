//! The socket of an established flow: whole requests go out, whole answers come in, neither waits for the other.

use std::{collections::VecDeque, io, net::SocketAddr};

use oracle::history::{Stage, Transport};
use tokio::net::{TcpStream, UdpSocket};

use super::{
    attempt::{Trace, unspecified},
    tcp,
};
use crate::wire;

/// What is read at once, in bytes.
const READ: usize = 2048;

/// A socket that may be used again and again.
pub(super) enum Socket {
    /// A connection.
    Tcp(TcpStream),
    /// `connect` once, then `send` and `recv`.
    Connected(UdpSocket),
    /// `sendto` and `recvfrom`.
    Unconnected(UdpSocket, SocketAddr),
}

impl Socket {
    pub(super) async fn open(
        transport: Transport,
        destination: SocketAddr,
        trace: &mut Trace,
    ) -> io::Result<Self> {
        let socket = match transport {
            Transport::Tcp => Self::Tcp(tcp::connect(destination, trace).await?),
            Transport::UdpConnected => {
                let socket = UdpSocket::bind(unspecified(destination)).await?;
                trace.stage = Stage::Connect;
                socket.connect(destination).await?;
                Self::Connected(socket)
            }
            Transport::Udp => {
                Self::Unconnected(UdpSocket::bind(unspecified(destination)).await?, destination)
            }
        };
        trace.local = Some(match &socket {
            Self::Tcp(stream) => stream.local_addr()?,
            Self::Connected(socket) | Self::Unconnected(socket, _) => socket.local_addr()?,
        });
        Ok(socket)
    }

    /// Sends some of what is queued, and takes it from the queue. Cancelled, it has sent nothing.
    pub(super) async fn send(&self, queue: &mut VecDeque<Vec<u8>>) -> io::Result<()> {
        let Some(first) = queue.front_mut() else {
            return Ok(());
        };
        let sent = match self {
            Self::Tcp(stream) => loop {
                stream.writable().await?;
                match stream.try_write(first) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => break done?,
                }
            },
            Self::Connected(socket) => socket.send(first).await?,
            Self::Unconnected(socket, destination) => socket.send_to(first, destination).await?,
        };
        first.drain(..sent);
        if first.is_empty() {
            queue.pop_front();
        }
        Ok(())
    }

    /// The next answer and who gave it as the socket sees it. Cancelled, it keeps what it has read of a line in `begun`.
    pub(super) async fn receive(&self, begun: &mut Vec<u8>) -> io::Result<(Vec<u8>, SocketAddr)> {
        let mut buffer = [0; READ];
        match self {
            Self::Tcp(stream) => loop {
                if let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                    let rest = begun.split_off(end + 1);
                    return Ok((std::mem::replace(begun, rest), stream.peer_addr()?));
                }
                if begun.len() > wire::MAX_ANSWER {
                    // No answer of ours: it is told as what it is, and so far.
                    return Ok((std::mem::take(begun), stream.peer_addr()?));
                }
                stream.readable().await?;
                match stream.try_read(&mut buffer) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(length) => begun.extend_from_slice(&buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            },
            Self::Connected(socket) => {
                let length = socket.recv(&mut buffer).await?;
                Ok((buffer[..length].to_vec(), socket.peer_addr()?))
            }
            Self::Unconnected(socket, _) => {
                let (length, source) = socket.recv_from(&mut buffer).await?;
                Ok((buffer[..length].to_vec(), source))
            }
        }
    }
}
