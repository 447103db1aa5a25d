//! Model → what the maps should say. Pure, without ids, sorted.
//!
//! `plan` is the union of `plan_service` over all Services and the node itself: what the incremental path writes for
//! one Service after an event is what a fresh agent would write for it. The rules are those of `SERVICES.md`.
//!
//! | file | what |
//! |---|---|
//! | `service` | frontends, addresses, health check and findings of a Service; the node's own |
//! | `backends` | cluster, local and serving set of a service port; hints |
//! | `serving` | what clients of every frontend meet, to be compared with maps |

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
    findings::Finding,
    maglev::Scale,
    model::{Dirty, Event, Model},
    names::ObjectId,
    transport::{Backend, Family, Protocol, Range, TransportAddress},
};

pub use self::{
    backends::BACKENDS,
    serving::{Serving, addresses, clients, resolve},
};

/// For whom plans are made: the part of the input that events don't say.
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
    /// How large Maglev's tables are; `None`: there are none.
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

/// A port of a Service, in one family. As endpoints are found by its name, it is the same one while that and its protocol
/// are, whatever number it is given: its flows and sockets go on where a node port leads to it before and after. kube-proxy
/// tells ports apart so, too (`ServicePortName`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// What it is called.
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
            PortName::Answered(number) => write!(f, "{protocol} {number} ({family})"),
        }
    }
}

/// The name of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortName {
    /// Its Service's; empty for the only one of a Service.
    Of(Arc<str>),
    /// None: it is answered by this machine, at this number.
    Answered(u16),
}

/// One of the two sets of backends of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// [`PortPlan::cluster`].
    Cluster,
    /// [`PortPlan::local`].
    Local,
}

/// What a service port should be: its frontends, and who serves them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// Who serves by policy `Cluster`, each address once. Empty: connections are refused. To be written only if a
    /// frontend has this set.
    pub cluster: BTreeSet<Backend>,
    /// Who serves by policy `Local`. To be written only if a frontend has this set.
    pub local: BTreeSet<Backend>,
    /// To whom established flows keep; with all of `cluster` and `local`.
    pub serving: BTreeSet<Backend>,
    /// Where clients connect to; at least one.
    pub frontends: BTreeMap<TransportAddress, FrontendPlan>,
    /// How one of a set's backends is chosen.
    pub selection: Selection,
    /// How large its tables are, if it has any.
    pub scale: Scale,
    /// How long a client is sent to the backend that it had; 0: not at all.
    pub affinity_seconds: u32,
    /// Who may use the frontends that are `ranged`; `None` if none is.
    pub sources: Option<BTreeSet<Range>>,
    /// Whether the agent's own sockets keep the last backends that it had: it is the agent's way to its API server.
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

    /// Whether a frontend has one of its sets.
    pub fn uses(&self, set: Set) -> bool {
        let mut frontends = self.frontends.values();
        frontends.any(|one| one.internal == set || one.external == set)
    }

    /// What FRONTENDS should say of one of its frontends, beside who serves it.
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

    /// What the slots of one of its sets should hold, in order.
    pub fn slots(&self, set: Set) -> Vec<Backend> {
        serving::slots(self.set(set), self.selection, self.scale)
    }
}

/// What clients of a frontend meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontendPlan {
    /// Whom clients on this node get.
    pub internal: Set,
    /// Whom clients from outside get.
    pub external: Set,
    /// Whether packets from outside are dropped, not rejected, while there is no backend for them.
    pub silent: bool,
    /// Whether [`PortPlan::sources`] says who is served.
    pub ranged: bool,
    /// Whether it is a node port whose number is the target port's, too: a pod with the node's network may be bound to it.
    pub target_port: bool,
    /// Whether it is the Service's own, which no other one is given while it has it: at its cluster IP.
    pub own: bool,
}

/// The health check node port of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Where it is served, at this host's addresses, by TCP.
    pub port: u16,
    /// How many ready endpoints of the Service are on this node, counted by address.
    pub local_endpoints: usize,
}

/// What a Service should be, and what of it can't.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePlan {
    /// Its ports; one without frontends has no entry.
    pub ports: BTreeMap<PortId, PortPlan>,
    /// The addresses of its frontends, node ports excepted, with what ADDRESSES should say of each; 0: nothing but
    /// its frontends is the agent's there. Several Services may share one, which then has the flags of all.
    pub addresses: BTreeMap<IpAddr, u32>,
    /// The addresses of the cluster's clients; of the node itself alone.
    pub clients: BTreeSet<Range>,
    /// Its health check node port.
    pub health_check: Option<HealthCheck>,
    /// What of the Service can't be had, sorted.
    pub findings: Vec<Finding>,
}

impl ServicePlan {
    /// Whether there is nothing to be done for it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What everything should be.
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

/// Lets the model take an event; the result names everything whose plan, from this perspective, may differ from before.
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
