//! Sockets of a network namespace: listed, and ended (`linux/inet_diag.h`, `linux/sock_diag.h`).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::netlink::{Message, Netlink, errno, u32_at};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `SOCK_DESTROY`.
const DESTROY: u16 = 21;
/// `sizeof(struct inet_diag_sockid)`.
const ID: usize = 48;

/// Whose sockets are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketFamily {
    V4,
    V6,
}

/// Which sockets are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketKind {
    /// UDP, in every state.
    Udp,
    /// TCP, where a SYN was sent and not answered.
    TcpOpening,
}

/// A socket as it was when it was listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Socket {
    kind: SocketKind,
    family: SocketFamily,
    /// `struct inet_diag_sockid`, as the kernel has told it.
    id: [u8; ID],
}

impl Socket {
    /// As `SO_COOKIE` and the programs have it.
    pub(crate) fn cookie(&self) -> u64 {
        let word = |at| u64::from(u32_at(&self.id, at).unwrap_or_default());
        word(40) | word(44) << 32
    }

    /// Whom it is connected to; of an IPv6 socket that names an IPv4 address, that one.
    pub(crate) fn peer(&self) -> SocketAddr {
        let port = u16::from_be_bytes([self.id[2], self.id[3]]);
        let address = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&self.id[at..at + 16]);
            bytes
        };
        let bytes = address(20);
        let ip = match self.family {
            SocketFamily::V4 => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
            SocketFamily::V6 => Ipv6Addr::from(bytes).to_canonical(),
        };
        SocketAddr::new(ip, port)
    }

    /// Ends its connection: a receive fails with ECONNABORTED. `false`: it is gone, or has another peer by now.
    ///
    /// # Errors
    /// EOPNOTSUPP of kernels without `CONFIG_INET_DIAG_DESTROY`.
    pub(crate) fn destroy(&self, netlink: &mut Netlink) -> io::Result<bool> {
        match netlink.request(&Message::new(
            DESTROY,
            0,
            &request(self.kind, self.family, &self.id),
        )) {
            Ok(()) => Ok(true),
            // Looked for by both addresses, and then told by its cookie.
            Err(error) if matches!(errno(&error), Some(libc::ENOENT | libc::ESTALE)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Calls `each` with every socket of a kind, of those that are connected to this port if there is one.
pub(crate) fn sockets(
    netlink: &mut Netlink,
    kind: SocketKind,
    family: SocketFamily,
    peer_port: Option<u16>,
    mut each: impl FnMut(Socket),
) -> io::Result<()> {
    let mut id = [0; ID];
    // 0 is any port.
    id[2..4].copy_from_slice(&peer_port.unwrap_or_default().to_be_bytes());
    netlink.stream(&Message::new(BY_FAMILY, 0, &request(kind, family, &id)), |body| {
        /// In `struct inet_diag_msg`: after family, state, timer, retransmissions.
        const AT: usize = 4;
        if let Some(id) = body.get(AT..AT + ID).and_then(|id| id.try_into().ok()) {
            each(Socket { kind, family, id });
        }
    })
}

/// `struct inet_diag_req_v2`.
fn request(kind: SocketKind, family: SocketFamily, id: &[u8; ID]) -> Vec<u8> {
    // By number, `TCP_SYN_SENT` is 2.
    let (protocol, states) = match kind {
        SocketKind::Udp => (17, u32::MAX),
        SocketKind::TcpOpening => (6, 1 << 2),
    };
    let family: u8 = match family {
        SocketFamily::V4 => 2,
        SocketFamily::V6 => 10,
    };
    let mut bytes = vec![family, protocol, 0, 0];
    bytes.extend(u32::to_ne_bytes(states));
    bytes.extend(id);
    bytes
}
