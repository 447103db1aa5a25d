//! The frontends through which the agent reaches its API servers.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Dirty, Model};
use crate::{
    endpoint_address::{Family, Protocol, TransportAddress},
    names::ObjectId,
};

impl Model {
    /// Whether a socket of the agent that connects to one of its API servers meets this frontend. It is that address and
    /// port, or a node port of that number, if this machine serves node ports at the address. A node port at another
    /// Node's address is not translated here (`ebpf/DATAPATH.md`, "Sockets").
    pub fn is_api_frontend(&self, frontend: &TransportAddress) -> bool {
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
            number == port && Family::of(at) == family && self.machines.serve_node_ports_at(at)
        })
    }

    /// Sets the addresses of API servers. Owners of frontends that become API frontends, or cease to be, are marked.
    pub(super) fn put_api_servers(&mut self, servers: BTreeSet<(IpAddr, u16)>, dirty: &mut Dirty) {
        let before = self.api_frontends();
        self.api_servers = servers;
        self.mark_owners(&before, &self.api_frontends(), dirty);
    }

    /// The Services through whose frontends the agent reaches its API servers.
    pub fn api_frontend_owners(&self) -> impl Iterator<Item = ObjectId> {
        let frontends = self.api_frontends().into_iter();
        frontends.filter_map(|frontend| self.owner(&frontend))
    }

    /// Node ports among the API frontends.
    pub(super) fn api_node_ports(&self) -> BTreeSet<TransportAddress> {
        let servers = self.api_servers.iter();
        let here = servers.filter(|(address, _)| self.machines.serve_node_ports_at(*address));
        here.map(|&(address, port)| tcp(Family::of(address).unspecified(), port))
            .collect()
    }

    /// Marks the owners of frontends that are in one of these sets only.
    pub(super) fn mark_owners(
        &self,
        before: &BTreeSet<TransportAddress>,
        after: &BTreeSet<TransportAddress>,
        dirty: &mut Dirty,
    ) {
        let changed = before.symmetric_difference(after);
        dirty.extend(changed.filter_map(|frontend| self.owner(frontend)));
    }

    /// All API frontends, with or without an owner.
    fn api_frontends(&self) -> BTreeSet<TransportAddress> {
        let exact = self.api_servers.iter();
        let exact = exact.filter(|(address, _)| !address.is_unspecified());
        let mut frontends = self.api_node_ports();
        frontends.extend(exact.map(|&(address, port)| tcp(address, port)));
        frontends
    }
}

const fn tcp(address: IpAddr, port: u16) -> TransportAddress {
    TransportAddress {
        protocol: Protocol::Tcp,
        address,
        port,
    }
}
