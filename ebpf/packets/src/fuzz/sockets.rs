//! Sockets of the node's own, whose ports are not allocated.

use std::{
    collections::BTreeSet,
    io,
    net::{TcpListener, UdpSocket},
};

use lb_abi::{TCP, UDP};

use super::pool;
use crate::{
    model::Socket,
    world::{V4, V6},
};

/// One TCP and one UDP socket at each of the node's addresses, for as long as this lives.
#[derive(Debug)]
pub struct Sockets {
    _open: Vec<(TcpListener, UdpSocket)>,
}

impl Sockets {
    /// In the [`World`](crate::world::World) that the thread is in.
    ///
    /// # Errors
    /// What the kernel says: outside a world, that the node's addresses are not there (EADDRNOTAVAIL).
    pub fn open() -> io::Result<Self> {
        let open = [V4.node, V6.node].map(|node| {
            let at = (node, pool::TAKEN);
            Ok((TcpListener::bind(at)?, UdpSocket::bind(at)?))
        });
        Ok(Self {
            _open: open.into_iter().collect::<io::Result<_>>()?,
        })
    }

    /// Where they are.
    pub(super) fn taken(&self) -> BTreeSet<Socket> {
        let ends = [V4.node, V6.node]
            .into_iter()
            .flat_map(|node| [TCP, UDP].map(|protocol| (protocol, node.into(), pool::TAKEN)));
        ends.collect()
    }
}
