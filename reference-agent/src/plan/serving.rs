//! What clients of every frontend meet: the plan as the maps are compared with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Plan, PortPlan, Selection};
use crate::{
    maglev::{self, Scale},
    transport::{Backend, Range, TransportAddress},
};

/// What clients of a frontend meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Whom each slot leads clients on this node to. Empty: connections are refused.
    pub internal: Vec<Backend>,
    /// Whom each slot leads clients from outside to. Empty: connections are refused.
    pub external: Vec<Backend>,
    /// How a slot is chosen.
    pub selection: Selection,
    /// How long a client is sent to the backend that it had, in seconds; 0: not at all.
    pub affinity_seconds: u32,
    /// Whether clients from outside are not told that nobody serves them.
    pub silent: bool,
    /// Whether sockets of the node may be bound to it, though it is a node port.
    pub target_port: bool,
    /// Who is served; `None`: everybody.
    pub sources: Option<BTreeSet<Range>>,
}

/// Every frontend, and what clients of it meet.
pub fn resolve(plan: &Plan) -> BTreeMap<TransportAddress, Serving> {
    let ports = plan.values().flat_map(|service| service.ports.values());
    ports.flat_map(frontends).collect()
}

/// What ADDRESSES should hold: of each address the flags that all Services together give it.
pub fn addresses(plan: &Plan) -> BTreeMap<IpAddr, u32> {
    let mut union = BTreeMap::new();
    for (&address, flags) in plan.values().flat_map(|service| &service.addresses) {
        *union.entry(address).or_default() |= flags;
    }
    union
}

/// The ranges that SOURCES should hold of the cluster's clients.
pub fn clients(plan: &Plan) -> BTreeSet<Range> {
    let ranges = plan.values().flat_map(|service| &service.clients);
    ranges.copied().collect()
}

fn frontends(port: &PortPlan) -> impl Iterator<Item = (TransportAddress, Serving)> {
    port.frontends.iter().map(|(&address, frontend)| {
        let serving = Serving {
            internal: port.slots(frontend.internal),
            external: port.slots(frontend.external),
            selection: port.selection,
            affinity_seconds: port.affinity_seconds,
            silent: frontend.silent,
            target_port: frontend.target_port,
            sources: port.sources.clone().filter(|_| frontend.ranged),
        };
        (address, serving)
    })
}

/// What the slots of a set should hold, in order.
pub(super) fn slots(backends: &BTreeSet<Backend>, selection: Selection, scale: Scale) -> Vec<Backend> {
    match selection {
        Selection::Random => backends.iter().copied().collect(),
        Selection::Maglev => {
            let by_address: BTreeMap<_, _> = backends.iter().map(|one| (one.address, *one)).collect();
            let table = maglev::table(scale, by_address.keys().copied());
            table.iter().map(|address| by_address[address]).collect()
        }
    }
}
