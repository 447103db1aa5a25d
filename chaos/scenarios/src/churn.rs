//! What chaos writes, as comparisons see it: the numbers, ports and endpoints of its Services, and its faults that any two labs can
//! have. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    chaos::{
        schedule::{self, Action, Does, FaultKind, ServiceWrite, SliceWrite},
        shapes::{self, PORT},
        world::{Client, Front, Served, World},
    },
    step::{Backend, Condition, Kind, Service, To, Vantage},
};

/// Number of chaos's first Service: those of scenarios' own have lower ones.
pub(crate) const FIRST: u8 = 100;
/// Nodes of each cluster, to which backends are dealt in turn.
pub(crate) const NODES: u8 = 2;
/// The node ports that chaos passes on, by its numbers of them.
pub(crate) const NODE_PORTS: [u16; schedule::NODE_PORTS as usize] = [30500, 30501];
/// Faults that a lab can make whatever runs there, and that no datagram and no established connection meets: what becomes of those under
/// other faults is no promise.
pub const FAULTS: [FaultKind; 16] = [
    FaultKind::WatchesCut,
    FaultKind::EventsDelayed,
    FaultKind::EventsDropped,
    FaultKind::VersionsExpired,
    FaultKind::ApiBehind,
    FaultKind::ApiUnavailable,
    FaultKind::ApiBusy,
    FaultKind::ApiSlow,
    FaultKind::ListsTruncated,
    FaultKind::ApiServerDown,
    FaultKind::ChangesStorm,
    FaultKind::VersionsJump,
    FaultKind::AgentKilled,
    FaultKind::AgentDown,
    FaultKind::AgentFrozen,
    FaultKind::AgentCrashLoop,
];

/// The number that chaos gives a Service; `None`: it is a scenario's own.
pub(crate) fn of_chaos(number: u8) -> Option<u8> {
    number.checked_sub(FIRST)
}

/// The port that a Service's backends listen on for it, if it is one of chaos.
pub(crate) fn target(number: u8) -> Option<u16> {
    let service = of_chaos(number).filter(|service| *service < schedule::SERVICES)?;
    Some(shapes::target(service))
}

/// The writes that make all of a world, where nothing is.
pub(crate) fn writes(world: &World) -> Vec<Action> {
    let services = world.services.iter().map(|(&service, to)| {
        let to = Some(*to);
        Does::Service(ServiceWrite { service, to })
    });
    let slices = world.slices.iter().map(|(&slice, to)| {
        let to = Some(to.clone());
        Does::Slice(SliceWrite { slice, to })
    });
    let all = services.chain(slices);
    all.map(|does| Action { at_ms: 0, does }).collect()
}

/// Whether it may be a part of a scenario.
pub(crate) fn is_sound(action: &Action) -> bool {
    let is_comparable = |does: &Does| match does {
        Does::Fault(fault) => FAULTS.contains(&fault.kind),
        Does::Service(_) | Does::Annotate(_) | Does::Slice(_) => true,
    };
    action.check(1, schedule::LONGEST_FAULT_MS).is_ok() && is_comparable(&action.does)
}

/// The faults of some actions.
pub(crate) fn faults(actions: &[Action]) -> impl Iterator<Item = FaultKind> + '_ {
    actions.iter().filter_map(|action| match &action.does {
        Does::Fault(fault) => Some(fault.kind),
        Does::Service(_) | Does::Annotate(_) | Does::Slice(_) => None,
    })
}

/// A world's Services by their numbers here.
pub(crate) fn services(world: &World) -> BTreeMap<u8, Service> {
    let all = world.services.iter().map(|(&number, service)| {
        let node_port = service.node_port.map(|port| NODE_PORTS[usize::from(port)]);
        let service = Service {
            kind: node_port.map_or(Kind::ClusterIP, |_| Kind::NodePort),
            port: PORT,
            node_port,
            external_ips: Vec::new(),
            load_balancer: Vec::new(),
            external_local: node_port.is_some() && service.external_local,
            internal_local: service.internal_local,
            affinity: service.affinity,
            endpoints: endpoints(world, number),
        };
        (FIRST + number, service)
    });
    all.collect()
}

/// The endpoints of a Service in all of its slices. An endpoint that several list is what it is in the best of them; where that is left
/// to implementations, [`disputed`] knows it.
fn endpoints(world: &World, service: u8) -> BTreeMap<Backend, Condition> {
    let mut all: BTreeMap<Backend, Condition> = BTreeMap::new();
    let slices = world.slices.values().filter(|slice| slice.of == service);
    for endpoint in slices.flat_map(|slice| slice.endpoints.iter().flatten()) {
        let condition = match endpoint.condition {
            schedule::Condition::Ready | schedule::Condition::Published => Condition::Ready,
            schedule::Condition::Terminating => Condition::Terminating,
            schedule::Condition::Unready | schedule::Condition::Stopped => Condition::Unready,
        };
        let one = all
            .entry(Backend::ALL[usize::from(endpoint.backend)])
            .or_insert(condition);
        let rank = |condition| match condition {
            Condition::Ready => 0,
            Condition::Terminating => 1,
            Condition::Unready => 2,
        };
        if rank(condition) < rank(*one) {
            *one = condition;
        }
    }
    all
}

/// Where slices list an endpoint of a Service with different conditions, which of them counts is left to implementations: what a
/// destination then is to a client; `None`: no slices do.
pub(crate) fn disputed(world: &World, number: u8, from: Vantage, to: To) -> Option<Disputed> {
    let service = of_chaos(number)?;
    // What a Service's endpoints are where no policy chooses among them.
    let whole = world.served(Front::ClusterIp(service), Client::Outside, None, NODES);
    if !whole.is_disputed {
        return None;
    }
    let served = served(world, service, from, to);
    let backends = served.by.iter();
    Some(Disputed {
        by: backends
            .map(|(_, backend)| Backend::ALL[usize::from(*backend)])
            .collect(),
        may_fail: served.terms.may_fail,
    })
}

/// What a destination of a Service is to a client, as the world has it.
fn served(world: &World, service: u8, from: Vantage, to: To) -> Served {
    let index = |node: u8| node - 1;
    let client = match from.node().map(index) {
        None => Client::Outside,
        Some(node) if from.is_host() => Client::Host(node),
        Some(node) => Client::Pod(node),
    };
    let (port, at) = match to {
        To::ClusterIp { .. } => (None, None),
        To::At { address, port } => (Some(port), address.node()),
        To::Loopback { port } => (Some(port), from.node()),
    };
    let node_port = (0..).zip(NODE_PORTS).find(|(_, one)| Some(*one) == port);
    let front = node_port.map_or(Front::ClusterIp(service), |(number, _)| Front::NodePort(number));
    world.served(front, client, at.map(index), NODES)
}

/// A destination that is left to implementations.
pub(crate) struct Disputed {
    /// The backends that may serve it.
    pub(crate) by: BTreeSet<Backend>,
    /// Whether there may be none of them.
    pub(crate) may_fail: bool,
}

#[cfg(test)]
mod tests;
