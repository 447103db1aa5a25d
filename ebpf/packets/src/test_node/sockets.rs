//! Sockets of the node: bound, or connected without a packet, as no host answers in a [`TestNode`](super::TestNode).

use std::{io, net::SocketAddr};

use lb_abi::TCP;
use nix::sys::socket::{setsockopt, sockopt::TcpRepair};
use socket2::{Domain, Socket, Type};

/// A UDP socket, or a TCP socket that listens.
///
/// # Errors
/// What the kernel returns: outside a world, EADDRNOTAVAIL.
pub fn bound(protocol: u8, at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), kind(protocol), None)?;
    socket.bind(&at.into())?;
    if protocol == TCP {
        socket.listen(1)?;
    }
    Ok(socket)
}

/// A UDP socket with a peer, or an established TCP connection: in repair mode, which makes one without a packet. Several may have
/// the same address and port.
///
/// # Errors
/// What the kernel returns: without CAP_NET_ADMIN, EPERM.
pub fn connected(protocol: u8, from: SocketAddr, to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(from), kind(protocol), None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&from.into())?;
    if protocol == TCP {
        setsockopt(&socket, TcpRepair, &1)?;
    }
    socket.connect(&to.into())?;
    Ok(socket)
}

fn kind(protocol: u8) -> Type {
    if protocol == TCP {
        Type::STREAM
    } else {
        Type::DGRAM
    }
}
