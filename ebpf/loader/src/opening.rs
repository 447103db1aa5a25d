//! TCP connections that are being opened: their SYN is not answered.
//!
//! The kernel sends a SYN again, for two minutes, to the address that `connect` was translated to, even when
//! another pod has that address.
//! A socket that is ended (`SOCK_DESTROY`, Linux 4.5) fails with ECONNABORTED, and its owner connects anew.

use std::{collections::HashSet, io, net::SocketAddr, os::fd::BorrowedFd};

use crate::{
    LoaderError, namespace,
    sys::{
        netlink::{Family, Netlink, errno},
        sock_diag::{self, SocketFamily, SocketKind},
    },
};

/// Most that are listed by one call.
const MOST: usize = 1 << 20;

/// A socket whose connection is being opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// As `SO_COOKIE` and the programs have it.
    pub cookie: u64,
    /// Whom it asks, as an IPv4 address if it is one.
    pub peer: SocketAddr,
}

/// The connections of a network namespace that are being opened, of both families.
///
/// # Errors
/// [`LoaderError::Unsupported`] where the kernel can't list sockets of TCP (`CONFIG_INET_DIAG`).
pub fn opening(namespace: BorrowedFd<'_>) -> Result<Vec<Opening>, LoaderError> {
    namespace::within(namespace, || {
        let found = list(&mut open()?)?;
        let opening = found.into_iter().map(|socket| Opening {
            cookie: socket.cookie(),
            peer: socket.peer(),
        });
        Ok(opening.collect())
    })
}

/// In a network namespace, ends those of these sockets, named by cookie, whose connection is still being opened. The result: how
/// many.
///
/// # Errors
/// As of [`opening`], and where the kernel can't end sockets (`CONFIG_INET_DIAG_DESTROY`).
pub fn terminate_opening(namespace: BorrowedFd<'_>, sockets: &HashSet<u64>) -> Result<usize, LoaderError> {
    if sockets.is_empty() {
        return Ok(0);
    }
    namespace::within(namespace, || {
        let mut netlink = open()?;
        let mut ended = 0;
        let found = list(&mut netlink)?.into_iter();
        for socket in found.filter(|socket| sockets.contains(&socket.cookie())) {
            match socket.destroy(&mut netlink) {
                Ok(true) => ended += 1,
                Ok(false) => {}
                Err(error) if errno(&error) == Some(libc::EOPNOTSUPP) => {
                    return Err(unsupported("end", "CONFIG_INET_DIAG_DESTROY", error));
                }
                Err(error) => return Err(failed("end")(error)),
            }
        }
        Ok(ended)
    })
}

fn open() -> Result<Netlink, LoaderError> {
    Netlink::open(Family::Sockets).map_err(failed("list"))
}

fn list(netlink: &mut Netlink) -> Result<Vec<sock_diag::Socket>, LoaderError> {
    let mut found = Vec::new();
    for family in [SocketFamily::V4, SocketFamily::V6] {
        let listed = sock_diag::sockets(netlink, SocketKind::TcpOpening, family, None, |socket| {
            if found.len() < MOST {
                found.push(socket);
            }
        });
        match listed {
            // No handler of the family and protocol.
            Err(error) if errno(&error) == Some(libc::ENOENT) => {
                return Err(unsupported("list", "CONFIG_INET_DIAG", error));
            }
            listed => listed.map_err(failed("list"))?,
        }
    }
    Ok(found)
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> LoaderError {
    LoaderError::kernel(format!("{what} TCP sockets whose connection is being opened"))
}

fn unsupported(what: &str, option: &'static str, source: io::Error) -> LoaderError {
    LoaderError::Unsupported {
        what: format!("{what} TCP sockets whose connection is being opened"),
        option,
        source,
    }
}
