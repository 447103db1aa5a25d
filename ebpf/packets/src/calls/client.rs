//! A socket of a case: makes its calls, and sees what comes of them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream},
    os::fd::AsFd as _,
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    model::{CallResult, Outcome},
    named_address::NamedAddress,
    network::{Network, end},
    step::{Bound, Call, SocketKind, To},
};

/// A socket, and the other end of its connection.
#[derive(Debug)]
pub(super) struct Client {
    socket: Socket,
    kind: SocketKind,
    tcp: bool,
    pub(super) pod: bool,
    accepted: Option<TcpStream>,
}

impl Client {
    /// In the thread's namespace.
    pub(super) fn open(kind: SocketKind, tcp: bool, pod: bool) -> io::Result<Self> {
        let socket = socket(kind, tcp)?;
        let any: IpAddr = if kind == SocketKind::V4 {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        if tcp {
            // What is closed is reset, and no port waits for the end of its connection.
            socket.set_linger(Some(Duration::ZERO))?;
        } else {
            socket.bind(&SocketAddr::new(any, 0).into())?;
        }
        Ok(Self {
            socket,
            kind,
            tcp,
            pod,
            accepted: None,
        })
    }

    /// What the kernel calls it.
    pub(super) fn cookie(&self) -> io::Result<u64> {
        self.socket.cookie()
    }

    /// Makes a call. `outcomes`, of which one should come, say what is worth being waited for, and for so many milliseconds.
    pub(super) fn call(
        &mut self,
        network: &Network,
        call: Call,
        outcomes: &[Outcome],
        patience: u16,
    ) -> io::Result<CallResult> {
        let reaches = |seen: &CallResult| {
            outcomes
                .iter()
                .any(|outcome| outcome.seen.server.is_some() && seen.error.is_none())
        };
        let wait = |worth: bool| PollTimeout::from(if worth { patience } else { 0 });
        let socket = &self.socket;
        let mut seen;
        match call {
            Call::Connect(to) => {
                seen = ended(socket.connect(&self.destination(to)));
                if self.tcp {
                    let accepted = network.accepted(wait(reaches(&seen)))?;
                    seen.server = accepted.as_ref().map(TcpStream::local_addr).transpose()?.map(end);
                    self.accepted = accepted.or(self.accepted.take());
                }
            }
            Call::Peer => match socket.peer_addr() {
                Ok(peer) => {
                    seen = CallResult::default();
                    seen.shown = peer.as_socket().map(end);
                }
                Err(error) => seen = ended(Err(error)),
            },
            Call::Send { asks, .. } | Call::Again { asks } => {
                let sent = match call {
                    Call::Send { to, .. } => socket.send_to(b"who", &self.destination(to)),
                    _ => socket.send(b"who"),
                };
                seen = ended(sent.map(drop));
                if let Some((server, client)) = network.received(wait(reaches(&seen)))? {
                    let at = end(server.local_addr()?);
                    seen.server = Some(at);
                    server.send_to(b"me", client)?;
                    let same = outcomes.iter().find(|outcome| outcome.seen.server == Some(at));
                    receive(
                        socket,
                        wait(same.is_some_and(|same| same.seen.received)),
                        asks,
                        &mut seen,
                    )?;
                }
            }
            Call::Unsolicited { from, port, v4 } => {
                seen = CallResult::default();
                let v4 = self.kind.names_v4(v4);
                let at = SocketAddr::new(from.ip(v4), port);
                let server = network.server(at).ok_or(io::ErrorKind::NotFound)?;
                let here = socket.local_addr()?.as_socket().map_or(0, |here| here.port());
                server.send_to(b"me", SocketAddr::new(NamedAddress::Loopback.ip(v4), here))?;
                receive(socket, wait(true), true, &mut seen)?;
            }
            Call::Open { .. } | Call::Close | Call::Bind(_) => seen = CallResult::default(),
        }
        Ok(seen)
    }

    fn destination(&self, to: To) -> SockAddr {
        // TCP refuses an IPv4 address on an IPv6 socket.
        let plain = to.plain && !self.tcp;
        name(self.kind, to.place.ip(self.kind.names_v4(to.v4)), to.port, plain)
    }
}

fn socket(kind: SocketKind, tcp: bool) -> io::Result<Socket> {
    let domain = if kind == SocketKind::V4 {
        Domain::IPV4
    } else {
        Domain::IPV6
    };
    let protocol = if tcp { Type::STREAM } else { Type::DGRAM };
    let socket = Socket::new(domain, protocol, None)?;
    if kind != SocketKind::V4 {
        socket.set_only_v6(kind == SocketKind::V6)?;
    }
    Ok(socket)
}

/// Binds a socket, in the thread's namespace, and closes it.
pub(super) fn bind(bound: Bound) -> io::Result<CallResult> {
    let socket = socket(bound.kind, bound.tcp)?;
    socket.set_freebind_v4(true)?;
    if bound.kind != SocketKind::V4 {
        socket.set_freebind_v6(true)?;
    }
    if bound.kind == SocketKind::V6 {
        socket.set_only_v6(bound.only_v6)?;
    }
    let at = name(
        bound.kind,
        bound.place.ip(bound.kind != SocketKind::V6),
        bound.port,
        false,
    );
    Ok(ended(socket.bind(&at)))
}

/// With the number of its error.
fn ended(result: io::Result<()>) -> CallResult {
    CallResult {
        error: result.err().map(|error| error.raw_os_error().unwrap_or(0)),
        ..CallResult::default()
    }
}

/// Receives something that comes within this time.
fn receive(socket: &Socket, wait: PollTimeout, asks: bool, seen: &mut CallResult) -> io::Result<()> {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, wait)?;
    if !polled[0].any().unwrap_or(false) {
        return Ok(());
    }
    let mut buffer = [std::mem::MaybeUninit::uninit(); 64];
    if asks {
        let (_, from) = socket.recv_from(&mut buffer)?;
        seen.shown = from.as_socket().map(end);
    } else {
        socket.recv(&mut buffer)?;
    }
    seen.received = true;
    Ok(())
}

/// An address as a socket names it.
fn name(kind: SocketKind, ip: IpAddr, port: u16, plain: bool) -> SockAddr {
    match ip {
        IpAddr::V4(v4) if kind != SocketKind::V4 && !plain => {
            SocketAddrV6::new(v4.to_ipv6_mapped(), port, 0, 0).into()
        }
        ip => SocketAddr::new(ip, port).into(),
    }
}
