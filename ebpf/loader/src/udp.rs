//! Ends connected UDP sockets whose backend is gone, so that their owners connect anew and come to another.
//!
//! A socket that `connect` was called on keeps its peer: what the programs made of the address then. Nothing tells its
//! owner that the backend went, unless a host there answers with an ICMP error. So the socket is ended (`SOCK_DESTROY`, Linux
//! 4.5; of UDP 4.9): a receive, now or next, fails with ECONNABORTED, and a send with EDESTADDRREQ, as the
//! socket is not connected any more.

use std::{collections::HashSet, io, net::SocketAddr, os::fd::BorrowedFd};

use crate::{
    LoaderError, namespace,
    sys::{
        netlink::{Family, Netlink, errno},
        sock_diag::{self, Socket, SocketFamily, SocketKind},
    },
};

/// Most sockets that are ended by one call: 64 bytes of memory each.
const MOST: usize = 1 << 20;

/// What [`terminate_udp`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terminated {
    /// Sockets whose connection was ended.
    pub ended: usize,
    /// Sockets that were connected to the backend when they were listed, and were gone or connected elsewhere when they
    /// were to be ended.
    pub moved: usize,
    /// Whether there were more than one call ends; call again.
    pub more: bool,
}

/// In a network namespace, ends the connections of those of these sockets, named by cookie, that are connected to a
/// backend. Both families; an IPv6 socket may be connected to an IPv4 backend. Others are left alone: not connected,
/// connected to others, or connected to this backend by its own address and so not among these.
///
/// # Errors
/// [`LoaderError::Unsupported`] where the kernel can't list (`CONFIG_INET_UDP_DIAG`) or end
/// (`CONFIG_INET_DIAG_DESTROY`) sockets of UDP.
pub fn terminate_udp(
    namespace: BorrowedFd<'_>,
    backend: SocketAddr,
    sockets: &HashSet<u64>,
) -> Result<Terminated, LoaderError> {
    if sockets.is_empty() {
        return Ok(Terminated::default());
    }
    let backend = SocketAddr::new(backend.ip().to_canonical(), backend.port());
    namespace::within(namespace, || terminate(backend, sockets))
}

fn terminate(backend: SocketAddr, sockets: &HashSet<u64>) -> Result<Terminated, LoaderError> {
    let failed = |what: &str| LoaderError::kernel(format!("{what} UDP sockets connected to {backend}"));
    let mut netlink = Netlink::open(Family::Sockets).map_err(failed("list"))?;
    let (mut connected, mut done) = (Vec::new(), Terminated::default());
    for family in [SocketFamily::V4, SocketFamily::V6] {
        let listed = sock_diag::sockets(
            &mut netlink,
            SocketKind::Udp,
            family,
            Some(backend.port()),
            |socket: Socket| {
                if socket.peer() == backend && sockets.contains(&socket.cookie()) {
                    if connected.len() < MOST {
                        connected.push(socket);
                    } else {
                        done.more = true;
                    }
                }
            },
        );
        match listed {
            // No handler of the family and protocol.
            Err(error) if errno(&error) == Some(libc::ENOENT) => {
                return Err(unsupported("list", "CONFIG_INET_UDP_DIAG", error));
            }
            listed => listed.map_err(failed("list"))?,
        }
    }
    for socket in connected {
        match socket.destroy(&mut netlink) {
            Ok(true) => done.ended += 1,
            Ok(false) => done.moved += 1,
            Err(error) if errno(&error) == Some(libc::EOPNOTSUPP) => {
                return Err(unsupported("end", "CONFIG_INET_DIAG_DESTROY", error));
            }
            Err(error) => return Err(failed("end")(error)),
        }
    }
    Ok(done)
}

fn unsupported(what: &str, option: &'static str, source: io::Error) -> LoaderError {
    LoaderError::Unsupported {
        what: format!("{what} UDP sockets"),
        option,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_it_is_said_to_be_one_and_which_option_it_lacks() {
        let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let said = unsupported("end", "CONFIG_INET_DIAG_DESTROY", source).to_string();
        assert!(
            said.starts_with("this kernel can't end UDP sockets")
                && said.contains("CONFIG_INET_DIAG_DESTROY"),
            "{said}"
        );
    }
}
