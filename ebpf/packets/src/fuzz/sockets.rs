//! Sockets of the node that are open while cases run: their ports and their tuples are not given to flows.

use std::{io, net::IpAddr};

use lb_abi::{Port, TCP, Tuple, UDP};
use socket2::Socket;

use super::pool;
use crate::{
    build::End,
    model::NodeSockets,
    test_node::{Addresses, V4, V6, sockets},
};

/// The node's sockets, for as long as this lives.
#[derive(Debug)]
pub struct Sockets {
    _open: Vec<Socket>,
    modelled: NodeSockets,
}

impl Sockets {
    /// In the [`TestNode`](crate::test_node::TestNode) that the thread is in.
    ///
    /// # Errors
    /// What the kernel returns: outside a test node, that its addresses do not exist (EADDRNOTAVAIL).
    pub fn open() -> io::Result<Self> {
        let mut open = Vec::new();
        let mut modelled = NodeSockets::default();
        for at in [&V4, &V6] {
            for protocol in [TCP, UDP] {
                let end = (at.node, pool::TAKEN);
                open.push(sockets::bound(protocol, end.into())?);
                modelled.bound.insert((protocol, at.node.into(), pool::TAKEN));
                for (from, to) in connections(at) {
                    open.push(sockets::connected(protocol, from.into(), to.into())?);
                    modelled.connected.insert(tuple(protocol, from, to));
                }
            }
        }
        Ok(Self {
            _open: open,
            modelled,
        })
    }

    /// As the model reads them.
    pub(super) fn modelled(&self) -> NodeSockets {
        self.modelled.clone()
    }
}

/// To backends, from the port of a client and from one that is allocated; and from a node port, to a client.
fn connections(at: &Addresses) -> Vec<(End, End)> {
    let backends: [IpAddr; 4] = [at.pod_a, at.pod_b, at.remote, at.remote_also];
    let targets = backends
        .into_iter()
        .flat_map(|address| pool::TARGETS.map(|port| (address, port)));
    let mut all: Vec<(End, End)> = targets.map(|to| ((at.node, pool::SOURCES[0]), to)).collect();
    all.push(((at.node, pool::TAKEN - 1), (at.remote, pool::TARGETS[0])));
    all.push(((at.node, pool::PORTS[2]), (at.client, pool::SOURCES[0])));
    all
}

fn tuple(protocol: u8, from: End, to: End) -> Tuple {
    Tuple {
        source: from.0.into(),
        destination: to.0.into(),
        source_port: Port::new(from.1),
        destination_port: Port::new(to.1),
        protocol,
        pad: [0; 3],
    }
}
