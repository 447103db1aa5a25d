//! Nodes, this machine, and their addresses.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Dirty,
    address_users::AddressUsers,
    objects::{Host, Node},
};
use crate::{endpoint_address::Range, hash::HashMap, names::ObjectId};

/// Nodes and this machine, and the Services with load balancers at their addresses.
#[derive(Debug, Default)]
pub(super) struct Machines {
    nodes: HashMap<String, Node>,
    host: Option<Host>,
    /// How many machines have each address.
    addresses: HashMap<IpAddr, u32>,
    /// Services by the addresses of their load balancers.
    load_balancers: AddressUsers,
}

impl Machines {
    /// Whether there is no Node, no address of a machine, and no load balancer.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.addresses.is_empty() && self.load_balancers.is_empty()
    }

    /// A Node.
    pub(super) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// All Nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// The addresses of clients of all Nodes.
    pub(super) fn clients(&self) -> impl Iterator<Item = Range> {
        self.nodes.values().flat_map(Node::clients)
    }

    /// This machine.
    pub(super) fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Whether an address is a machine's.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// Whether node ports are served at an address for sockets of this machine: at its own addresses, at loopback, and
    /// at the unspecified address, which means loopback.
    pub(super) fn serve_node_ports_at(&self, address: IpAddr) -> bool {
        let Some(host) = &self.host else { return false };
        let loopback = address.is_loopback() || address.is_unspecified();
        host.addresses.contains(&address) || (loopback && !host.addresses.is_empty())
    }

    /// Puts or deletes a Node. Services with a load balancer at an address that becomes a machine's, or ceases to be, are
    /// marked. So is the node itself, if the addresses of the Node's clients change.
    pub(super) fn put_node(&mut self, name: &str, node: Option<Node>, dirty: &mut Dirty) {
        let clients = |node: Option<&Node>| node.into_iter().flat_map(Node::clients).collect::<BTreeSet<_>>();
        if clients(self.nodes.get(name)) != clients(node.as_ref()) {
            dirty.insert(ObjectId::NODE);
        }
        let after = node.as_ref().map_or_else(Vec::new, |node| node.addresses.clone());
        let before = match node {
            Some(node) => self.nodes.insert(name.to_owned(), node),
            None => self.nodes.remove(name),
        };
        self.replace_addresses(before.map_or_else(Vec::new, |node| node.addresses), after, dirty);
    }

    /// Replaces this machine, and marks as [`put_node`](Self::put_node) does. The result: what it was before.
    pub(super) fn put_host(&mut self, host: Host, dirty: &mut Dirty) -> Option<Host> {
        let after = host.addresses.iter().copied().collect();
        let before = self.host.replace(host);
        let old = before.iter().flat_map(|host| &host.addresses).copied().collect();
        self.replace_addresses(old, after, dirty);
        before
    }

    /// Replaces the load balancer addresses of a Service.
    pub(super) fn load_balancers(&mut self, service: ObjectId, before: &[IpAddr], after: &[IpAddr]) {
        after.iter().for_each(|ip| self.load_balancers.add(*ip, service));
        before
            .iter()
            .for_each(|ip| self.load_balancers.remove(*ip, service));
    }

    fn replace_addresses(&mut self, before: Vec<IpAddr>, after: Vec<IpAddr>, dirty: &mut Dirty) {
        if before == after {
            return;
        }
        let touched: BTreeSet<_> = before.iter().chain(&after).copied().collect();
        let was: Vec<_> = touched.iter().map(|address| self.has_address(*address)).collect();
        for address in after {
            *self.addresses.entry(address).or_default() += 1;
        }
        for address in before {
            if let Some(count) = self.addresses.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.addresses.remove(&address);
                }
            }
        }
        for (address, was) in touched.into_iter().zip(was) {
            if was != self.has_address(address) {
                dirty.extend(self.load_balancers.of(address));
            }
        }
    }
}
