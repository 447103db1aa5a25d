//! How each frontend is served, in the form in which plans and maps are compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Plan, PortPlan, Selection};
use crate::{
    endpoint_address::{Backend, Range, TransportAddress},
    maglev::{self, Scale},
};

/// How a frontend is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// The backend of each slot, for clients on this node. Empty: connections are refused.
    pub internal: Vec<Backend>,
    /// The backend of each slot, for clients from outside. Empty: connections are refused.
    pub external: Vec<Backend>,
    /// How a slot is chosen.
    pub selection: Selection,
    /// Time limit of session affinity, in seconds; 0: none.
    pub affinity_seconds: u32,
    /// Whether packets from outside are dropped, not rejected, while there is no backend for them.
    pub silent: bool,
    /// Whether it is a node port to which sockets of the node may bind.
    pub target_port: bool,
    /// The clients that are served; `None`: all.
    pub sources: Option<BTreeSet<Range>>,
}

/// Every frontend of a plan, and how it is served.
pub fn resolve(plan: &Plan) -> BTreeMap<TransportAddress, Serving> {
    let ports = plan.values().flat_map(|service| service.ports.values());
    ports.flat_map(frontends).collect()
}

/// The contents of ADDRESSES: each address with the flags of all Services.
pub fn addresses(plan: &Plan) -> BTreeMap<IpAddr, u32> {
    let mut union = BTreeMap::new();
    for (&address, flags) in plan.values().flat_map(|service| &service.addresses) {
        *union.entry(address).or_default() |= flags;
    }
    union
}

/// The ranges of the cluster's clients in SOURCES.
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

/// The slots of a set, in order.
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
