//! Two network namespaces with servers, whose sockets are of no cgroup that programs are attached to.

use std::{
    fs::File,
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::fd::AsFd,
};

use lb_abi::Address;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns},
};
use test_network::{EnteredNamespace, IpNet, Links, current_namespace};

use super::{
    kernel::CallError,
    named_address::{DEAD, NamedAddress, SERVED},
};

/// A namespace: its file, its cookie, its servers.
#[derive(Debug)]
pub(super) struct Network {
    file: File,
    pub(super) cookie: u64,
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
}

impl Network {
    /// Makes both. The thread is in the first afterwards, until the first value is dropped.
    pub(super) fn both() -> Result<(EnteredNamespace, [Self; 2]), CallError> {
        let ips: Vec<IpNet> = NamedAddress::SERVERS
            .into_iter()
            .filter(|place| *place != NamedAddress::Loopback)
            .flat_map(|place| [place.ip(true).into(), place.ip(false).into()])
            .collect();
        let enter = || {
            let entered = EnteredNamespace::enter()?;
            Links::here()?.addresses("lo", &ips)?;
            Ok::<_, CallError>((entered, Self::here()?))
        };
        let (first, node) = enter()?;
        let (second, pod) = enter()?;
        drop(second);
        Ok((first, [node, pod]))
    }

    /// Of the thread's namespace.
    fn here() -> Result<Self, CallError> {
        let ends = |port| {
            NamedAddress::SERVERS
                .into_iter()
                .flat_map(move |place| [true, false].map(|v4| SocketAddr::new(place.ip(v4), port)))
        };
        let udp = ends(SERVED).chain(ends(DEAD)).map(|at| {
            let socket = UdpSocket::bind(at)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let tcp = ends(SERVED).map(|at| {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        Ok(Self {
            file: current_namespace()?,
            cookie: lb_loader::namespace_cookie()?,
            udp: udp.collect::<io::Result<_>>()?,
            tcp: tcp.collect::<io::Result<_>>()?,
        })
    }

    /// Has the thread enter it.
    pub(super) fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.file, CloneFlags::CLONE_NEWNET)?)
    }

    /// The server of UDP that has received something, within this time, and from where.
    pub(super) fn received(&self, wait: PollTimeout) -> io::Result<Option<(&UdpSocket, SocketAddr)>> {
        let Some(server) = ready(&self.udp, wait)? else {
            return Ok(None);
        };
        let mut buffer = [0; 64];
        let (_, client) = server.recv_from(&mut buffer)?;
        Ok(Some((server, client)))
    }

    /// The connection that a listener has, within this time.
    pub(super) fn accepted(&self, wait: PollTimeout) -> io::Result<Option<std::net::TcpStream>> {
        ready(&self.tcp, wait)?
            .map(|listener| listener.accept().map(|(stream, _)| stream))
            .transpose()
    }

    /// The server of UDP at an address.
    pub(super) fn server(&self, at: SocketAddr) -> Option<&UdpSocket> {
        self.udp
            .iter()
            .find(|server| server.local_addr().is_ok_and(|address| address == at))
    }
}

/// The first of these that can be read.
fn ready<T: AsFd>(sockets: &[T], wait: PollTimeout) -> io::Result<Option<&T>> {
    let mut polled: Vec<_> = sockets
        .iter()
        .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
        .collect();
    poll(&mut polled, wait)?;
    let index = polled.iter().position(|polled| polled.any().unwrap_or(false));
    Ok(index.map(|index| &sockets[index]))
}

/// An address and port as maps have them, an IPv4-mapped one as the IPv4 one.
pub(super) fn end(at: SocketAddr) -> (Address, u16) {
    (at.ip().into(), at.port())
}
