//! Nodes, this machine, and whose addresses are theirs.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Dirty,
    holders::Holders,
    objects::{Host, Node},
};
use crate::{hash::HashMap, names::ObjectId, transport::Range};

/// What is known of machines, and which Services have load balancers.
#[derive(Debug, Default)]
pub(super) struct Machines {
    nodes: HashMap<String, Node>,
    host: Option<Host>,
    /// How many have each.
    addresses: HashMap<IpAddr, u32>,
    /// Services by the addresses of their load balancers.
    load_balancers: Holders,
}

impl Machines {
    /// Whether no Node is known, no address of a machine, and no load balancer.
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
    pub(super) fn have(&self, address: IpAddr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// Whether a socket of this machine that connects to this address meets node ports: it is one of this machine's, or
    /// loopback, for which the unspecified address stands, too.
    pub(super) fn answer_node_ports(&self, address: IpAddr) -> bool {
        let Some(host) = &self.host else { return false };
        let loopback = address.is_loopback() || address.is_unspecified();
        host.addresses.contains(&address) || (loopback && !host.addresses.is_empty())
    }

    /// A Node is like this, or is not there. Whoever has a load balancer at an address that was a machine's and is no
    /// more, or the other way round, is marked; and the node itself, if the Node's clients have other addresses.
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
        self.moved(before.map_or_else(Vec::new, |node| node.addresses), after, dirty);
    }

    /// This machine is like this. Marks as [`put_node`](Self::put_node) does. The result is what it was before.
    pub(super) fn put_host(&mut self, host: Host, dirty: &mut Dirty) -> Option<Host> {
        let after = host.addresses.iter().copied().collect();
        let before = self.host.replace(host);
        let old = before.iter().flat_map(|host| &host.addresses).copied().collect();
        self.moved(old, after, dirty);
        before
    }

    /// A Service has other load balancers than before.
    pub(super) fn load_balancers(&mut self, service: ObjectId, before: &[IpAddr], after: &[IpAddr]) {
        after.iter().for_each(|ip| self.load_balancers.hold(*ip, service));
        before
            .iter()
            .for_each(|ip| self.load_balancers.release(*ip, service));
    }

    fn moved(&mut self, before: Vec<IpAddr>, after: Vec<IpAddr>, dirty: &mut Dirty) {
        if before == after {
            return;
        }
        let touched: BTreeSet<_> = before.iter().chain(&after).copied().collect();
        let was: Vec<_> = touched.iter().map(|address| self.have(*address)).collect();
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
            if was != self.have(address) {
                dirty.extend(self.load_balancers.of(address));
            }
        }
    }
}
