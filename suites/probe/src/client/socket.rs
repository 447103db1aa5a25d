//! A client's socket: it sends whole requests and receives whole answers, and neither waits for the other.

use std::{
    collections::VecDeque,
    future::{Future as _, poll_fn},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    task::Poll,
};

use oracle::history::{Stage, Transport};
use socket2::SockRef;
use tokio::net::{TcpStream, UdpSocket};

use super::{attempt::Trace, tls::Tls};
use crate::{http, stream, wire};

/// Size of one read in bytes: a whole datagram.
const READ: usize = wire::MAX_DATAGRAM;

/// A socket that may be used repeatedly.
pub(super) enum Socket {
    /// A connection of TCP or SCTP; each line is a message.
    Stream(TcpStream),
    /// A connection with HTTP.
    Http(TcpStream, SocketAddr),
    /// A connection with TLS and HTTP.
    Tls(Box<Tls>),
    /// `connect` once, then `send` and `recv`.
    Connected(UdpSocket),
    /// `sendto` and `recvfrom`.
    Unconnected(UdpSocket, SocketAddr),
}

impl Socket {
    /// Opens a socket on a port (0: the kernel chooses), and records the progress in the trace.
    pub(super) async fn open(
        transport: Transport,
        destination: SocketAddr,
        source_port: u16,
        trace: &mut Trace,
    ) -> io::Result<Self> {
        let from = any(destination, source_port);
        let socket = match transport {
            Transport::Tcp => Self::Stream(connect(stream::Protocol::Tcp, from, destination, trace).await?),
            Transport::Sctp => Self::Stream(connect(stream::Protocol::Sctp, from, destination, trace).await?),
            Transport::Http => {
                let stream = connect(stream::Protocol::Tcp, from, destination, trace).await?;
                Self::Http(stream, destination)
            }
            Transport::Tls => {
                let stream = connect(stream::Protocol::Tcp, from, destination, trace).await?;
                trace.local = Some(stream.local_addr()?);
                trace.stage = Stage::Tls;
                Self::Tls(Box::new(Tls::shake_hands(stream, destination).await?))
            }
            Transport::UdpConnected => {
                let socket = UdpSocket::bind(from).await?;
                trace.stage = Stage::Connect;
                socket.connect(destination).await?;
                Self::Connected(socket)
            }
            Transport::Udp => Self::Unconnected(UdpSocket::bind(from).await?, destination),
        };
        trace.local = Some(socket.local_addr()?);
        Ok(socket)
    }

    /// Sets another destination of a UDP socket, by connecting it again if it is connected. A connection keeps its
    /// destination.
    ///
    /// # Errors
    /// Of `connect`.
    pub(super) async fn lead_to(&mut self, destination: SocketAddr, trace: &mut Trace) -> io::Result<()> {
        match self {
            Self::Connected(socket) => {
                trace.stage = Stage::Connect;
                socket.connect(destination).await?;
            }
            Self::Unconnected(_, to) => *to = destination,
            Self::Stream(_) | Self::Http(..) | Self::Tls(_) => {}
        }
        trace.local = Some(self.local_addr()?);
        Ok(())
    }

    /// Whether a message is a datagram.
    pub(super) fn is_udp(&self) -> bool {
        matches!(self, Self::Connected(_) | Self::Unconnected(..))
    }

    /// Its own address.
    ///
    /// # Errors
    /// Of `getsockname`.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Stream(stream) | Self::Http(stream, _) => stream.local_addr(),
            Self::Tls(tls) => tls.local_addr(),
            Self::Connected(socket) | Self::Unconnected(socket, _) => socket.local_addr(),
        }
    }

    /// The request with a nonce, in the form of this socket.
    pub(super) fn request(&self, nonce: &str, keep: bool) -> Vec<u8> {
        match self {
            Self::Http(_, host) => http::request(nonce, keep, *host),
            Self::Tls(tls) => tls.request(nonce, keep),
            Self::Stream(_) | Self::Connected(_) | Self::Unconnected(..) => wire::request(nonce, keep),
        }
    }

    /// Sends some of the queue, and removes it from there. Cancelled, it has sent nothing.
    pub(super) async fn send(&self, queue: &mut VecDeque<Vec<u8>>) -> io::Result<()> {
        let Some(first) = queue.front_mut() else {
            return Ok(());
        };
        let sent = match self {
            Self::Stream(stream) | Self::Http(stream, _) => loop {
                stream.writable().await?;
                match stream.try_write(first) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => break done?,
                }
            },
            Self::Tls(tls) => tls.send(first).await?,
            Self::Connected(socket) => socket.send(first).await?,
            Self::Unconnected(socket, destination) => socket.send_to(first, destination).await?,
        };
        first.drain(..sent);
        if first.is_empty() {
            queue.pop_front();
        }
        Ok(())
    }

    /// Waits for the server's end of a connection of lines. Closed afterwards, the server's side has the tuple in TIME-WAIT and not
    /// this one (RFC 9293, 3.6), so that the port can be used for the same destination again at once.
    pub(super) async fn ended(&self) -> io::Result<()> {
        let Self::Stream(stream) = self else {
            return Ok(());
        };
        let mut rest = [0; 64];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut rest) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next answer and the socket's peer. If it is cancelled, `begun` keeps what was read of an answer; also if the
    /// peer ends in the middle of one, which is an unexpected end of file.
    pub(super) async fn receive(&self, begun: &mut Vec<u8>) -> io::Result<(Vec<u8>, SocketAddr)> {
        match self {
            Self::Stream(stream) => receive(stream, begun, take_line).await,
            Self::Http(stream, _) => receive(stream, begun, http::take_body).await,
            Self::Tls(tls) => tls.receive(begun).await,
            Self::Connected(socket) => {
                let mut datagram = Vec::with_capacity(READ);
                socket.recv_buf(&mut datagram).await?;
                Ok((datagram, socket.peer_addr()?))
            }
            Self::Unconnected(socket, _) => {
                let mut datagram = Vec::with_capacity(READ);
                let (_, source) = socket.recv_buf_from(&mut datagram).await?;
                Ok((datagram, source))
            }
        }
    }
}

/// `connect`, with the call that decides it in the trace.
async fn connect(
    protocol: stream::Protocol,
    from: SocketAddr,
    destination: SocketAddr,
    trace: &mut Trace,
) -> io::Result<TcpStream> {
    let socket = stream::socket(protocol, destination)?;
    if from.port() != 0 {
        // A connection to another peer that used the port may be in TIME_WAIT.
        socket.set_reuseaddr(true)?;
    }
    match protocol {
        stream::Protocol::Tcp if from.port() == 0 => {}
        stream::Protocol::Tcp => socket.bind(from)?,
        stream::Protocol::Sctp => {
            let source = stream::source(destination)?.unwrap_or(from.ip());
            socket.bind(SocketAddr::new(source, from.port()))?;
        }
    }
    trace.stage = Stage::Connect;
    // Its port is known while it connects, and no more once that has failed.
    let same = SockRef::from(&socket).try_clone()?;
    let mut connecting = pin!(socket.connect(destination));
    // After the first poll, a packet decides.
    let at_once = poll_fn(|context| Poll::Ready(connecting.as_mut().poll(context))).await;
    match at_once {
        Poll::Ready(connected) => connected,
        Poll::Pending => {
            trace.stage = Stage::Handshake;
            trace.local = same.local_addr()?.as_socket();
            drop(same);
            connecting.await
        }
    }
}

async fn receive(
    stream: &TcpStream,
    begun: &mut Vec<u8>,
    take: impl Fn(&mut Vec<u8>) -> Option<Vec<u8>>,
) -> io::Result<(Vec<u8>, SocketAddr)> {
    loop {
        if let Some(message) = take(begun) {
            return Ok((message, stream.peer_addr()?));
        }
        stream.readable().await?;
        begun.reserve(READ);
        match stream.try_read_buf(begun) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// A whole line, or what is too long for one: not a probe server's answer, reported as it is so far.
fn take_line(begun: &mut Vec<u8>) -> Option<Vec<u8>> {
    if let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
        let rest = begun.split_off(end + 1);
        return Some(std::mem::replace(begun, rest));
    }
    (begun.len() > wire::MAX_ANSWER).then(|| std::mem::take(begun))
}

/// Any address of the destination's family.
fn any(destination: SocketAddr, port: u16) -> SocketAddr {
    let address = match destination {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(address, port)
}
