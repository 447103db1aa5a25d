//! Verdicts on socket operations.

use lb_abi::{
    Address, Backend, BackendId, Chosen, FrontendKey, Service, ServiceId, address_flags, frontend_flags,
};

use crate::{Scope, Tables, affinity_of_netns, choose, find, frontend_lookup::is_unspecified, pick};

/// What decisions on sockets also read and write: CONFIG, KEPT and CHOSEN, and the caller.
///
/// Asked for only where it matters: most operations are none of a service's.
pub trait Caller {
    /// Whether the socket is in the node's own network namespace (`Config.node_netns`).
    fn in_node_netns(&self) -> bool;
    /// Cookie of the socket's network namespace.
    fn netns(&self) -> u64;
    /// Whether the process is in the agent's own cgroup (`Config.own_cgroup`).
    fn is_own(&self) -> bool;
    /// Looks up KEPT.
    fn kept(&self, id: ServiceId) -> Option<Service>;
    /// Whether an address is in one of `Config.service_ranges`.
    fn in_service_range(&self, address: Address) -> bool;
    /// Whether SOURCES has an address as one of the cluster's clients.
    fn is_clusters(&self, address: Address) -> bool;
    /// Whether this is about a datagram (`sendmsg`), and not a connection.
    fn is_datagram(&self) -> bool;
    /// Looks up CHOSEN, for a datagram; a connection chooses anew each time.
    fn chosen(&self, frontend: &FrontendKey) -> Option<Chosen>;
    /// Writes CHOSEN, for a datagram.
    fn keep_chosen(&self, frontend: &FrontendKey, chosen: &Chosen);
}

/// What becomes of `connect` and `sendmsg`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not a service's: left alone.
    Pass,
    /// Left to the packet programs, which see the source that the frontend asks for.
    Defer,
    /// To this backend.
    Translate(Target),
    /// ECONNREFUSED.
    Refuse(Refusal),
    /// The agent's own: to a backend that the service had when it last had any.
    Kept(Target),
    /// The agent's own: none is known, and it finds its way untranslated.
    OwnPass,
}

/// Where a socket is sent, and whose traffic that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The service port that the backend was chosen from.
    pub service: ServiceId,
    /// The backend's number.
    pub id: BackendId,
    /// The backend.
    pub backend: Backend,
}

/// Why nothing is behind a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The address is a service's, the port is not; or the service port has no slots.
    NoBackend,
    /// Something that the maps name is not in the maps. Never, by the order of writes; refused, because to pass
    /// would send a client to an address that never answers.
    Hole,
}

/// Decides on a destination.
#[inline(always)]
pub fn decide(tables: &impl Tables, caller: &impl Caller, destination: &FrontendKey) -> Verdict {
    let address = destination.address;
    let loopback = (address.is_loopback() || is_unspecified(address)) && caller.in_node_netns();
    let Some(frontend) = find(tables, destination, loopback) else {
        return unknown(tables, caller, address);
    };
    let Some(id) = Scope::Internal.service_port(&frontend) else {
        return unknown(tables, caller, address);
    };
    if frontend.flags & frontend_flags::SOURCE_RANGES != 0 || may_answer(tables, caller, address) {
        return Verdict::Defer;
    }
    if let Some(target) = chosen(tables, caller, destination, id) {
        return Verdict::Translate(target);
    }
    let refusal = match tables.service(id) {
        None | Some(Service { generation: 0, .. }) => Refusal::Hole,
        Some(Service { slots: 0, .. }) => Refusal::NoBackend,
        Some(service) => {
            let netns = if frontend.affinity_seconds == 0 {
                0
            } else {
                caller.netns()
            };
            let client = affinity_of_netns(id, netns);
            match choose(tables, &frontend, id, service, &client, tables.random()) {
                Some((chosen, backend)) if same_family(backend.address, address) => {
                    let (service, id) = (id, chosen);
                    caller.keep_chosen(destination, &Chosen { service, backend: id });
                    return Verdict::Translate(Target { service, id, backend });
                }
                _ => Refusal::Hole,
            }
        }
    };
    if caller.is_own() {
        own(tables, caller, id, address)
    } else {
        Verdict::Refuse(refusal)
    }
}

/// Whether a datagram from a pod to a frontend at the node's own address may be an answer: to the node itself, or to a client
/// that backends see at that address, whose port has the number. Packet programs find the flow.
#[inline(always)]
fn may_answer(tables: &impl Tables, caller: &impl Caller, address: Address) -> bool {
    caller.is_datagram()
        && tables
            .address(&address)
            .is_some_and(|flags| flags & address_flags::NODE != 0)
        && !caller.in_node_netns()
}

/// Whether a port that a socket of the node was bound to is a node port's, at an address where that answers; but a pod with the
/// node's network may serve at the number of its own Service's node port. `dual`: whether the socket, where it is bound to `::`,
/// has IPv4's addresses as well.
#[inline(always)]
pub fn is_reserved(tables: &impl Tables, bound: &FrontendKey, dual: impl FnOnce() -> bool) -> bool {
    let address = bound.address;
    let node_port = |unspecified| {
        let key = FrontendKey {
            address: unspecified,
            ..*bound
        };
        let frontend = tables.frontend(&key);
        frontend.is_some_and(|frontend| frontend.flags & frontend_flags::TARGET_PORT == 0)
    };
    if address == Address::UNSPECIFIED_V6 {
        return node_port(Address::UNSPECIFIED_V6) || (node_port(Address::UNSPECIFIED_V4) && dual());
    }
    let v4 = address.is_v4();
    let unspecified = if v4 {
        Address::UNSPECIFIED_V4
    } else {
        Address::UNSPECIFIED_V6
    };
    if !node_port(unspecified) {
        return false;
    }
    let at = if v4 && address.is_loopback() {
        Address::LOOPBACK_V4
    } else {
        address
    };
    address == unspecified
        || tables
            .address(&at)
            .is_some_and(|flags| flags & address_flags::NODE != 0)
}

/// Where a socket's earlier datagrams to a frontend went: one socket is one conversation, as it is to packet programs and to
/// conntrack. Not if the frontend is another service port's by now, or the backend serves no more, which removes the entry.
#[inline(always)]
fn chosen(
    tables: &impl Tables,
    caller: &impl Caller,
    frontend: &FrontendKey,
    service: ServiceId,
) -> Option<Target> {
    let chosen = caller.chosen(frontend)?;
    if chosen.service != service {
        return None;
    }
    let backend = tables.backend(chosen.backend)?;
    same_family(backend.address, frontend.address).then_some(Target {
        service,
        id: chosen.backend,
        backend,
    })
}

/// A destination that is no frontend.
#[inline(always)]
fn unknown(tables: &impl Tables, caller: &impl Caller, address: Address) -> Verdict {
    match tables.address(&address) {
        Some(flags) if flags & address_flags::VIP != 0 => Verdict::Refuse(Refusal::NoBackend),
        None if caller.in_service_range(address) && !caller.is_clusters(address) => {
            Verdict::Refuse(Refusal::NoBackend)
        }
        _ => Verdict::Pass,
    }
}

/// The agent's own way out: without a backend for the API server, it would never hear of one.
#[inline(always)]
fn own(tables: &impl Tables, caller: &impl Caller, id: ServiceId, address: Address) -> Verdict {
    let Some(service) = caller.kept(id) else {
        return Verdict::OwnPass;
    };
    if service.generation == 0 || service.slots == 0 {
        return Verdict::OwnPass;
    }
    match pick(tables, id, service, tables.random()) {
        Some((chosen, backend)) if same_family(backend.address, address) => Verdict::Kept(Target {
            service: id,
            id: chosen,
            backend,
        }),
        _ => Verdict::OwnPass,
    }
}

/// A socket of one family can't be sent to an address of the other: such a backend is as good as none.
#[inline(always)]
fn same_family(backend: Address, destination: Address) -> bool {
    backend.is_v4() == destination.is_v4()
}

#[cfg(test)]
mod tests;
