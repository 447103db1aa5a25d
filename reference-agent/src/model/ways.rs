//! By which frontends the agent reaches its API servers.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Dirty, Model};
use crate::{
    names::ObjectId,
    transport::{Family, Protocol, TransportAddress},
};

impl Model {
    /// Whether a socket of the agent that connects to one of its API servers gets to this frontend: it is exactly that
    /// address and port, or a node port of that number, and the address is one at which this machine answers node
    /// ports. A node port at another Node's address is that Node's affair: nobody translates it here
    /// (`ebpf/DATAPATH.md`, "Sockets").
    pub fn is_way(&self, frontend: &TransportAddress) -> bool {
        let TransportAddress {
            protocol,
            address,
            port,
        } = *frontend;
        if protocol != Protocol::Tcp {
            return false;
        }
        if !address.is_unspecified() {
            return self.api_servers.contains(&(address, port));
        }
        let family = Family::of(address);
        let mut servers = self.api_servers.iter();
        servers.any(|&(at, number)| {
            number == port && Family::of(at) == family && self.machines.answer_node_ports(at)
        })
    }

    /// The agent reaches its API servers here. Whoever has a frontend that is a way now and was none, or the other way
    /// round, is marked.
    pub(super) fn put_api_servers(&mut self, servers: BTreeSet<(IpAddr, u16)>, dirty: &mut Dirty) {
        let before = self.ways();
        self.api_servers = servers;
        self.mark_ways(&before, &self.ways(), dirty);
    }

    /// The Services by whose frontends the agent reaches its API servers.
    pub fn way_owners(&self) -> impl Iterator<Item = ObjectId> {
        self.ways().into_iter().filter_map(|way| self.owner(&way))
    }

    /// Node ports that are ways. Those of an address that the node has not are none.
    pub(super) fn node_port_ways(&self) -> BTreeSet<TransportAddress> {
        let servers = self.api_servers.iter();
        let here = servers.filter(|(address, _)| self.machines.answer_node_ports(*address));
        here.map(|&(address, port)| tcp(Family::of(address).unspecified(), port))
            .collect()
    }

    pub(super) fn mark_ways(
        &self,
        before: &BTreeSet<TransportAddress>,
        after: &BTreeSet<TransportAddress>,
        dirty: &mut Dirty,
    ) {
        let changed = before.symmetric_difference(after);
        dirty.extend(changed.filter_map(|way| self.owner(way)));
    }

    /// All of them, whoever has them.
    fn ways(&self) -> BTreeSet<TransportAddress> {
        let exact = self.api_servers.iter();
        let exact = exact.filter(|(address, _)| !address.is_unspecified());
        let mut ways = self.node_port_ways();
        ways.extend(exact.map(|&(address, port)| tcp(address, port)));
        ways
    }
}

const fn tcp(address: IpAddr, port: u16) -> TransportAddress {
    TransportAddress {
        protocol: Protocol::Tcp,
        address,
        port,
    }
}
