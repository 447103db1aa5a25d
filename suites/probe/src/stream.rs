//! Sockets that make connections: of TCP, and of SCTP with one association each (sctp(7), one-to-one style), used
//! alike.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

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

/// The address that packets to a destination are sent from. An association from a socket that is bound to no address has all of its
/// host's (RFC 9260, 5.1.2), and its peer sends to any of these: past the Service that it was opened through.
///
/// A raw socket asks the kernel's routes, as no program of a Service load balancer looks at its `connect`. `None`: that is not
/// permitted, as in most pods, which have one address.
///
/// # Errors
/// No route.
pub(crate) fn source(destination: SocketAddr) -> io::Result<Option<IpAddr>> {
    let family = Domain::for_address(destination);
    let raw = match Socket::new(family, Type::RAW, Some(socket2::Protocol::SCTP)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        raw => raw?,
    };
    raw.connect(&SocketAddr::new(destination.ip(), 0).into())?;
    Ok(raw.local_addr()?.as_socket().map(|local| local.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_loopback_are_sent_from_there() {
        for address in ["127.0.0.1:80", "[::1]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            match source(address).unwrap() {
                Some(found) => assert_eq!(found, address.ip()),
                None => testing::skip(&testing::current(), "raw sockets are not permitted"),
            }
        }
    }
}
