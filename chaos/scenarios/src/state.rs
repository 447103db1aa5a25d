//! The state after some steps, and which steps are valid then: pure, and the same for both clusters.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    chaos::world::{Call, World},
    churn,
    step::{Address, Backend, Change, Condition, Kind, Open, Protocol, Service, Step, To, Vantage},
};

/// Port of the outside client's own server, TCP and UDP.
pub const OUTSIDE_SERVER: u16 = 9000;

/// Existing Services, sockets and servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(crate) services: BTreeMap<u8, Service>,
    pub(crate) sockets: BTreeMap<u8, Open>,
    pub(crate) servers: BTreeSet<(u8, u16)>,
    /// What chaos has written; its Services are among the others.
    pub(crate) world: World,
    /// The states after each write of the last step: an implementation has seen all of them, or some.
    pub(crate) between: Vec<State>,
    /// Frontends that a Service has given up: conntrack entries of datagrams to them may still exist.
    given_up: BTreeSet<(Address, u16)>,
    /// Node ports that a Service has given up.
    node_ports_given_up: BTreeSet<u16>,
}

/// Kind of a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Front {
    ClusterIp,
    NodePort,
    /// An external IP or a load balancer's address.
    External,
}

impl State {
    /// The state after a step; `None` if the step is invalid.
    #[must_use]
    pub fn after(&self, step: &Step) -> Option<Self> {
        let mut next = Self {
            between: Vec::new(),
            ..self.clone()
        };
        let mut between = Vec::new();
        match step {
            Step::Write(changes) if changes.is_empty() => return None,
            Step::Write(changes) => {
                for change in changes {
                    next.write(change)?;
                    between.push(next.clone());
                }
                next.keep_sockets(self);
            }
            Step::Chaos(actions) => {
                if !actions.is_sorted_by_key(|action| action.at_ms) || !actions.iter().all(churn::is_sound) {
                    return None;
                }
                for action in actions {
                    for call in next.world.calls(&action.does) {
                        next.call(&call)?;
                        between.push(next.clone());
                    }
                }
                if between.is_empty() && churn::faults(actions).next().is_none() {
                    return None;
                }
                next.keep_sockets(self);
            }
            Step::Dial(dial) => {
                let in_fragments = !dial.fragments.is_empty();
                if !self.can_dial(dial.from, dial.to, dial.source_port)
                    || in_fragments && !can_send_fragments(dial.from, dial.protocol)
                {
                    return None;
                }
            }
            Step::Open(open) => {
                let is_new = !self.sockets.contains_key(&open.socket);
                if !is_new || !self.can_dial(open.from, open.to, open.source_port) {
                    return None;
                }
                next.sockets.insert(open.socket, open.clone());
            }
            Step::Send(send) => {
                let open = next.sockets.get_mut(&send.socket)?;
                if !self.leads(open.from, send.to)
                    || (open.protocol == Protocol::Tcp && open.to != send.to)
                    || (!send.fragments.is_empty() && !can_send_fragments(open.from, open.protocol))
                {
                    return None;
                }
                open.to = send.to;
            }
            Step::Close { socket } => {
                next.sockets.remove(socket)?;
            }
            Step::Serve { node, port } => {
                let host = if *node == 1 {
                    Vantage::Host1
                } else {
                    Vantage::Host2
                };
                let is_free = self.node_port(*port).is_none() && self.is_free(host, *port);
                if !is_free || !next.servers.insert((*node, *port)) {
                    return None;
                }
            }
            Step::EndServing { node, port } => {
                if !next.servers.remove(&(*node, *port)) {
                    return None;
                }
            }
        }
        next.between = between;
        Some(next)
    }

    /// Forgets sockets whose destination is no more since `before`: a socket keeps it, and does not change to another port of a cluster
    /// IP.
    fn keep_sockets(&mut self, before: &Self) {
        let port =
            |services: &BTreeMap<u8, Service>, number| services.get(&number).map(|service| service.port);
        let (services, sockets) = (&self.services, &mut self.sockets);
        sockets.retain(|_, open| match open.to {
            To::ClusterIp { service } => port(services, service) == port(&before.services, service),
            To::At { .. } | To::Loopback { .. } => true,
        });
    }

    /// Makes a call of chaos. `None` if another Service has its node port.
    fn call(&mut self, call: &Call) -> Option<()> {
        let is_of_chaos = |number: u8| churn::of_chaos(number).is_some();
        let held = self.services.extract_if(.., |number, _| is_of_chaos(*number));
        let given_up = held.filter_map(|(_, service)| service.node_port);
        self.node_ports_given_up.extend(given_up);
        self.world = self.world.after(call);
        let services = churn::services(&self.world);
        let mut ports = services.values().filter_map(|service| service.node_port);
        if ports.any(|port| self.node_port(port).is_some()) {
            return None;
        }
        self.services.extend(services);
        Some(())
    }

    /// Changes a Service. `None` if the change is invalid, or changes nothing.
    fn write(&mut self, change: &Change) -> Option<()> {
        if churn::of_chaos(change.service).is_some() {
            return None;
        }
        if let Some(before) = self.services.get(&change.service) {
            self.given_up.extend(frontends(before));
            self.node_ports_given_up.extend(before.node_port);
        }
        let Some(service) = &change.to else {
            self.services.remove(&change.service)?;
            return Some(());
        };
        let others = || {
            self.services
                .iter()
                .filter(|(number, _)| **number != change.service)
        };
        let is_taken = others().any(|(_, other)| {
            let same_port = service.node_port.is_some() && service.node_port == other.node_port;
            same_port || frontends(service).any(|one| frontends(other).any(|another| one == another))
        });
        let is_consistent = match service.kind {
            Kind::ClusterIP => service.node_port.is_none() && service.load_balancer.is_empty(),
            Kind::NodePort => service.node_port.is_some() && service.load_balancer.is_empty(),
            Kind::LoadBalancer => true,
        };
        let is_external = service.kind != Kind::ClusterIP || !service.external_ips.is_empty();
        let is_listed_twice = frontends(service).count() != frontends(service).collect::<BTreeSet<_>>().len();
        if is_taken
            || !is_consistent
            || is_listed_twice
            || service.external_local && !is_external
            || self.services.get(&change.service) == Some(service)
        {
            return None;
        }
        self.services.insert(change.service, service.clone());
        Some(())
    }

    fn can_dial(&self, from: Vantage, to: To, source_port: Option<u16>) -> bool {
        source_port.is_none_or(|port| self.is_free(from, port)) && self.leads(from, to)
    }

    /// Whether no socket or server of that machine uses the port.
    fn is_free(&self, at: Vantage, port: u16) -> bool {
        let serves = |(node, served): &(u8, u16)| at.is_host() && at.node() == Some(*node) && *served == port;
        let has = |open: &Open| open.from == at && open.source_port == Some(port);
        let outside = at == Vantage::Outside && port == OUTSIDE_SERVER;
        !outside && !self.servers.iter().any(serves) && !self.sockets.values().any(has)
    }

    /// Whether a comparison at the destination is meaningful.
    fn leads(&self, from: Vantage, to: To) -> bool {
        match to {
            // From outside, each implementation handles a cluster IP in its own way.
            To::ClusterIp { service } => from != Vantage::Outside && self.services.contains_key(&service),
            To::At { address, port } => address.is_machine() && port != 0 || self.front(to).is_some(),
            To::Loopback { .. } => from.is_host(),
        }
    }

    /// The Service and the kind of frontend of a destination.
    pub(crate) fn front(&self, to: To) -> Option<(u8, Front)> {
        match to {
            To::ClusterIp { service } => Some((service, Front::ClusterIp)),
            To::At { address, port } => {
                let here = |service: &Service| frontends(service).any(|one| one == (address, port));
                let external = self.services.iter().find(|(_, service)| here(service));
                let external = external.map(|(number, _)| (*number, Front::External));
                let is_node = matches!(address, Address::Node1 | Address::Node2);
                external.or_else(|| {
                    let owner = self.node_port(port).filter(|_| is_node)?;
                    Some((owner, Front::NodePort))
                })
            }
            To::Loopback { port } => Some((self.node_port(port)?, Front::NodePort)),
        }
    }

    /// Whether a destination was a Service's, which may have given it up since. A cluster IP always was.
    pub(crate) fn was_front(&self, to: To) -> bool {
        match to {
            To::ClusterIp { .. } => true,
            To::At { address, port } => {
                let is_node = matches!(address, Address::Node1 | Address::Node2);
                self.given_up.contains(&(address, port))
                    || is_node && self.node_ports_given_up.contains(&port)
            }
            To::Loopback { port } => self.node_ports_given_up.contains(&port),
        }
    }

    /// The Service with this node port.
    pub(crate) fn node_port(&self, port: u16) -> Option<u8> {
        let has = |(_, service): &(&u8, &Service)| service.node_port == Some(port);
        self.services.iter().find(has).map(|(number, _)| *number)
    }
}

/// Frontends for outside clients, except node ports.
pub(crate) fn frontends(service: &Service) -> impl Iterator<Item = (Address, u16)> + '_ {
    let addresses = service.external_ips.iter().chain(&service.load_balancer);
    addresses.map(|address| (*address, service.port))
}

/// Whether the client can send fragments: it needs a raw socket, which no socket hook of a node sees.
fn can_send_fragments(from: Vantage, protocol: Protocol) -> bool {
    from == Vantage::Outside && protocol == Protocol::Udp
}

impl Service {
    /// Endpoints that get new connections without a local policy: the ready ones, or else those that still serve.
    pub(crate) fn eligible(&self) -> BTreeSet<Backend> {
        let of = |wanted: Condition| {
            let is = move |(_, condition): &(&Backend, &Condition)| **condition == wanted;
            self.endpoints.iter().filter(is).map(|(backend, _)| *backend)
        };
        let ready: BTreeSet<Backend> = of(Condition::Ready).collect();
        if ready.is_empty() {
            of(Condition::Terminating).collect()
        } else {
            ready
        }
    }
}

/// The steps that are valid in turn; others are removed.
#[must_use]
pub fn sensible(steps: &[Step]) -> Vec<Step> {
    let mut state = State::default();
    let mut kept = Vec::new();
    for step in steps {
        if let Some(next) = state.after(step) {
            state = next;
            kept.push(step.clone());
        }
    }
    kept
}
