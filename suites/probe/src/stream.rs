//! Sockets that make connections: of TCP, and of SCTP with one association each (sctp(7), one-to-one style), used
//! alike.

use std::{io, net::SocketAddr};

use socket2::{Domain, Socket, Type};
use tokio::net::TcpSocket;

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// TCP.
    Tcp,
    /// SCTP, where the kernel has it.
    Sctp,
}

impl Protocol {
    /// Its name, as Kubernetes writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Sctp => "SCTP",
        }
    }
}

/// A new socket of an address's family.
///
/// # Errors
/// EPROTONOSUPPORT for SCTP where the kernel does not have it.
pub(crate) fn socket(protocol: Protocol, address: SocketAddr) -> io::Result<TcpSocket> {
    let protocol = match protocol {
        Protocol::Tcp => socket2::Protocol::TCP,
        Protocol::Sctp => socket2::Protocol::SCTP,
    };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}
