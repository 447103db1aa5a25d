//! Model → what the maps should say. Pure, without ids, sorted.
//!
//! `plan` is the union of `plan_service` over all Services: what the incremental path writes for one Service
//! after an event is what a fresh agent would write for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use lb_abi::{address_flags, frontend_flags};

use crate::{
    maglev,
    model::{self, Model, Service, ServicePort},
    names::ObjectId,
    transport::{Backend, Family, Protocol, TransportAddress},
};

/// For whom plans are made: the part of the input that the API doesn't say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Perspective {
    /// This node's name. Endpoints that name it are local.
    pub node: String,
    /// How a backend is chosen.
    pub selection: Selection,
}

/// How one of a service port's backends is chosen for a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Selection {
    /// At random: one slot for each backend
    #[default]
    Random,
    /// By a hash of the connection, in Maglev's table: the same backend on every node
    Maglev,
}

/// A port of a Service, in one family: the API has them unique by number and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// The frontends' port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// The family of its frontends and of its backends.
    pub family: Family,
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            port,
            protocol,
            family,
        } = self;
        write!(f, "{protocol} {port} ({family})")
    }
}

/// What a service port should be: the frontends that share one set of backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// Where clients connect to; at least one.
    pub frontends: BTreeSet<TransportAddress>,
    /// Who serves them, each address once. Empty: connections are refused.
    pub backends: BTreeSet<Backend>,
    /// How one of them is chosen.
    pub selection: Selection,
}

impl PortPlan {
    /// What its slots should hold, in order.
    pub fn slots(&self) -> Vec<Backend> {
        match self.selection {
            Selection::Random => self.backends.iter().copied().collect(),
            Selection::Maglev => {
                let by_address: BTreeMap<_, _> =
                    self.backends.iter().map(|one| (one.address, *one)).collect();
                let table = maglev::table(by_address.keys().copied());
                table.iter().map(|address| by_address[address]).collect()
            }
        }
    }

    /// The flags of its frontends.
    pub fn flags(&self) -> u32 {
        match self.selection {
            Selection::Random => 0,
            Selection::Maglev => frontend_flags::MAGLEV,
        }
    }
}

/// What a Service should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePlan {
    /// Its ports; one without frontends has no entry.
    pub ports: BTreeMap<PortId, PortPlan>,
    /// The addresses of their frontends, with what ADDRESSES should say of each: several Services may share one,
    /// which then has the flags of all.
    pub addresses: BTreeMap<IpAddr, u32>,
}

impl ServicePlan {
    /// Whether there is nothing to be written for it.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.addresses.is_empty()
    }
}

/// What everything should be.
pub type Plan = BTreeMap<ObjectId, ServicePlan>;

/// The plan of everything, from scratch.
pub fn plan(model: &Model, perspective: &Perspective) -> Plan {
    let services = model.services();
    services
        .map(|(id, _)| (id, plan_service(model, perspective, id)))
        .filter(|(_, plan)| !plan.is_empty())
        .collect()
}

/// The plan of one Service; empty if there is none.
pub fn plan_service(model: &Model, perspective: &Perspective, id: ObjectId) -> ServicePlan {
    let mut plan = ServicePlan::default();
    let Some(service) = model.service(id) else {
        return plan;
    };
    for port in &service.ports {
        for frontend in owned_frontends(model, id, service, port) {
            // A ClusterIP is Services' alone.
            *plan.addresses.entry(frontend.address).or_default() |= address_flags::VIP;
            let key = PortId {
                port: port.port,
                protocol: port.protocol,
                family: Family::of(frontend.address),
            };
            let entry = plan.ports.entry(key).or_insert_with(|| PortPlan {
                frontends: BTreeSet::new(),
                backends: backends(model, &perspective.node, id, port, key.family),
                selection: perspective.selection,
            });
            entry.frontends.insert(frontend);
        }
    }
    plan
}

/// What clients of a frontend meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Whom each slot leads to. Empty: connections are refused.
    pub slots: Vec<Backend>,
    /// How a slot is chosen.
    pub selection: Selection,
}

impl Serving {
    /// Whom clients can get.
    pub fn backends(&self) -> BTreeSet<Backend> {
        self.slots.iter().copied().collect()
    }
}

/// Every frontend, and what clients of it meet.
pub fn resolve(plan: &Plan) -> BTreeMap<TransportAddress, Serving> {
    let mut resolved = BTreeMap::new();
    for port in plan.values().flat_map(|service| service.ports.values()) {
        let serving = Serving {
            slots: port.slots(),
            selection: port.selection,
        };
        resolved.extend(port.frontends.iter().map(|frontend| (*frontend, serving.clone())));
    }
    resolved
}

/// What ADDRESSES should hold: of each address the flags that all Services together give it.
pub fn addresses(plan: &Plan) -> BTreeMap<IpAddr, u32> {
    let mut union = BTreeMap::new();
    for (&address, flags) in plan.values().flat_map(|service| &service.addresses) {
        *union.entry(address).or_default() |= flags;
    }
    union
}

fn owned_frontends(
    model: &Model,
    id: ObjectId,
    service: &Service,
    port: &ServicePort,
) -> impl Iterator<Item = TransportAddress> {
    let claimed = model::frontends_of_port(service, port);
    claimed.filter(move |frontend| model.owner(frontend) == Some(id))
}

fn backends(
    model: &Model,
    node: &str,
    id: ObjectId,
    port: &ServicePort,
    family: Family,
) -> BTreeSet<Backend> {
    // Slices may differ about where an address is: local is who is local for one of them.
    let mut backends = BTreeMap::<TransportAddress, bool>::new();
    for slice in model.slices_of(id) {
        let ports = slice.ports.iter();
        for target in ports.filter(|target| target.name == port.name && target.protocol == port.protocol) {
            let endpoints = slice.endpoints.iter();
            for endpoint in endpoints.filter(|one| one.ready && Family::of(one.address) == family) {
                let address = TransportAddress {
                    protocol: port.protocol,
                    address: endpoint.address,
                    port: target.port,
                };
                *backends.entry(address).or_default() |= endpoint.node.as_deref() == Some(node);
            }
        }
    }
    backends
        .into_iter()
        .map(|(address, local)| Backend { address, local })
        .collect()
}
