//! Model → the contents of the maps. Pure, without ids, sorted.
//!
//! `plan` is the union of `plan_service` over all Services and the node itself: after an event, the incremental path
//! writes for a Service what a new agent would write. The rules are those of `SERVICES.md`.
//!
//! | file | what |
//! |---|---|
//! | `service` | frontends, addresses, health check and findings of a Service; the node's own |
//! | `backends` | cluster, local and serving set of a service port; hints |
//! | `serving` | how each frontend is served, to be compared with maps |

mod backends;
mod service;
mod serving;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use lb_abi::{capacity, frontend_flags};

use crate::{
    endpoint_address::{Backend, Family, Protocol, Range, TransportAddress},
    findings::Finding,
    maglev::Scale,
    model::{Dirty, Event, Model},
    names::ObjectId,
};

pub use self::{
    backends::BACKENDS,
    serving::{Serving, addresses, clients, resolve},
};

/// The part of a plan's input that is not in events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Perspective {
    /// This node's name. Endpoints that name it are local.
    pub node: String,
    /// How a backend is chosen.
    pub selection: Selection,
    /// How many entries SLOTS has.
    pub slots: u32,
}

impl Default for Perspective {
    fn default() -> Self {
        Self {
            node: String::new(),
            selection: Selection::default(),
            slots: capacity::SLOTS,
        }
    }
}

impl Perspective {
    /// The size of Maglev's tables; `None`: there are none.
    pub fn scale(&self, model: &Model) -> Option<Scale> {
        match self.selection {
            Selection::Random => None,
            Selection::Maglev => Some(model.tables().scale(self.slots)),
        }
    }
}

/// How one of a service port's backends is chosen for a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Selection {
    /// At random: one slot for each backend
    #[default]
    Random,
    /// By a hash of the connection, in Maglev's table: the same backend on every node
    Maglev,
}

/// A port of a Service, in one family. Its identity is its name and protocol, not its number, as in kube-proxy
/// (`ServicePortName`): endpoints are found by name, and flows through a node port outlive a change of the number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// Its name.
    pub name: PortName,
    /// The protocol.
    pub protocol: Protocol,
    /// The family of its frontends and of its backends.
    pub family: Family,
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            protocol,
            family,
        } = self;
        match name {
            PortName::Of(name) if name.is_empty() => write!(f, "{protocol} ({family})"),
            PortName::Of(name) => write!(f, "{protocol} {name} ({family})"),
            PortName::ThisMachine(number) => write!(f, "{protocol} {number} ({family})"),
        }
    }
}

/// The name of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortName {
    /// In its Service; empty for the only port of a Service.
    Of(Arc<str>),
    /// A port without a name, which this machine serves at this number.
    ThisMachine(u16),
}

/// One of the two sets of backends of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// [`PortPlan::cluster`].
    Cluster,
    /// [`PortPlan::local`].
    Local,
}

/// The plan of a service port: its frontends and backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// The backends of policy `Cluster`, each address once. Empty: connections are refused. Written only if a frontend
    /// uses this set.
    pub cluster: BTreeSet<Backend>,
    /// The backends of policy `Local`. Written only if a frontend uses this set.
    pub local: BTreeSet<Backend>,
    /// The backends that established flows keep; with all of `cluster` and `local`.
    pub serving: BTreeSet<Backend>,
    /// Its frontends; at least one.
    pub frontends: BTreeMap<TransportAddress, FrontendPlan>,
    /// How a backend of a set is chosen.
    pub selection: Selection,
    /// The size of its tables, if it has any.
    pub scale: Scale,
    /// Time limit of session affinity; 0: none.
    pub affinity_seconds: u32,
    /// The clients that may use the frontends that are `ranged`; `None` if none is.
    pub sources: Option<BTreeSet<Range>>,
    /// Whether the agent's own sockets keep its last backends: the agent reaches its API server through it.
    pub keep: bool,
}

impl PortPlan {
    /// One of its sets.
    pub const fn set(&self, set: Set) -> &BTreeSet<Backend> {
        match set {
            Set::Cluster => &self.cluster,
            Set::Local => &self.local,
        }
    }

    /// Whether a frontend uses a set.
    pub fn uses(&self, set: Set) -> bool {
        let mut frontends = self.frontends.values();
        frontends.any(|one| one.internal == set || one.external == set)
    }

    /// The flags of a frontend in FRONTENDS.
    pub const fn flags(&self, frontend: &FrontendPlan) -> u32 {
        let maglev = match self.selection {
            Selection::Random => 0,
            Selection::Maglev => frontend_flags::MAGLEV,
        };
        let ranged = if frontend.ranged {
            frontend_flags::SOURCE_RANGES
        } else {
            0
        };
        let silent = if frontend.silent {
            frontend_flags::SILENT
        } else {
            0
        };
        let target = if frontend.target_port {
            frontend_flags::TARGET_PORT
        } else {
            0
        };
        maglev | ranged | silent | target
    }

    /// The slots of a set, in order.
    pub fn slots(&self, set: Set) -> Vec<Backend> {
        serving::slots(self.set(set), self.selection, self.scale)
    }
}

/// The plan of a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontendPlan {
    /// The set for clients on this node.
    pub internal: Set,
    /// The set for clients from outside.
    pub external: Set,
    /// Whether packets from outside are dropped, not rejected, while there is no backend for them.
    pub silent: bool,
    /// Whether only clients in [`PortPlan::sources`] are served.
    pub ranged: bool,
    /// Whether it is a node port with the number of its target port, to which a pod in the host network may bind.
    pub target_port: bool,
    /// Whether it is at the Service's cluster IP, which no other Service can claim.
    pub own: bool,
}

/// The health check node port of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Its TCP port, at all addresses of this host.
    pub port: u16,
    /// How many ready endpoints of the Service are on this node, counted by address.
    pub local_endpoints: usize,
}

/// The plan of a Service, and findings about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePlan {
    /// Its ports; one without frontends has no entry.
    pub ports: BTreeMap<PortId, PortPlan>,
    /// The addresses of its frontends, node ports excepted, with their flags in ADDRESSES; 0: only its frontends are the
    /// agent's there. An address of several Services has the flags of all.
    pub addresses: BTreeMap<IpAddr, u32>,
    /// The addresses of the cluster's clients; only in the plan of the node itself.
    pub clients: BTreeSet<Range>,
    /// Its health check node port.
    pub health_check: Option<HealthCheck>,
    /// Findings, sorted.
    pub findings: Vec<Finding>,
}

impl ServicePlan {
    /// Whether it has no effect.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The plan of everything.
pub type Plan = BTreeMap<ObjectId, ServicePlan>;

/// The plan of everything, from scratch.
pub fn plan(model: &Model, perspective: &Perspective) -> Plan {
    let services = model.services().map(|(id, _)| id);
    services
        .chain([ObjectId::NODE])
        .map(|id| (id, plan_service(model, perspective, id)))
        .filter(|(_, plan)| !plan.is_empty())
        .collect()
}

/// The plan of one Service, or of the node itself; empty if there is none.
pub fn plan_service(model: &Model, perspective: &Perspective, id: ObjectId) -> ServicePlan {
    match model.service(id) {
        Some(service) => service::service(model, perspective, id, service),
        None if id == ObjectId::NODE => service::node(model, perspective),
        None => ServicePlan::default(),
    }
}

/// Applies an event to the model. The result: everything whose plan, from this perspective, may have changed.
pub fn apply(model: &mut Model, perspective: &Perspective, event: Event) -> Dirty {
    let here = match &event {
        Event::NodeApplied(node) => node.name == perspective.node,
        Event::NodeDeleted(name) => *name == perspective.node,
        _ => false,
    };
    let zone = |model: &Model| {
        let node = here.then(|| model.node(&perspective.node)).flatten();
        node.and_then(|node| node.zone.clone())
    };
    let (zone_before, scale_before) = (zone(model), perspective.scale(model));
    let mut dirty = model.apply(event);
    if zone(model) != zone_before {
        dirty.append(&mut model.zoned());
    }
    if perspective.scale(model) != scale_before {
        dirty.extend(model.services().map(|(id, _)| id));
        dirty.insert(ObjectId::NODE);
    }
    dirty
}
