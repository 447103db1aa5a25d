//! What the API has after some writes, the calls that bring it there, and what each frontend then serves. All of it is pure.

use std::collections::{BTreeMap, BTreeSet};

use oracle::chaos::Terms;

use super::schedule::{
    BACKENDS, Condition, Does, Endpoint, HOMES, NODE_PORTS, Namespace, SERVICES, Service, Slice,
};

/// Services and EndpointSlices by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Services.
    pub services: BTreeMap<u8, Service>,
    /// Slices.
    pub slices: BTreeMap<u8, Slice>,
}

/// A frontend of the run, whichever Service has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Front {
    /// The cluster IP of a Service.
    ClusterIp(u8),
    /// A node port, by number.
    NodePort(u8),
    /// The load balancer's address of a Service.
    LoadBalancer(u8),
}

impl Front {
    /// What it is.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::ClusterIp(_) => "cluster IP",
            Self::NodePort(_) => "node port",
            Self::LoadBalancer(_) => "load balancer",
        }
    }
}

/// Where a client is. Nodes have numbers from 0, as backends are dealt to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// Outside the cluster.
    Outside,
    /// In a pod of a node.
    Pod(u8),
    /// In a node's own network.
    Host(u8),
}

impl Client {
    fn node(self) -> Option<u8> {
        match self {
            Self::Outside => None,
            Self::Pod(node) | Self::Host(node) => Some(node),
        }
    }
}

/// What a frontend is to a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Backends that new connections may reach, each after the number of the Service whose port it listens on.
    pub by: BTreeSet<(u8, u8)>,
    /// What else is promised.
    pub terms: Terms,
    /// Whether some of them may be left out: on ways that are left to implementations, and where slices list one endpoint with
    /// different conditions.
    pub is_disputed: bool,
}

impl Served {
    /// Whether exactly these backends serve, so that reads can tell.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.terms.may_fail && !self.is_disputed
    }

    /// Serves these, too.
    fn add(&mut self, eligible: Eligible) {
        self.terms.may_fail |= eligible.may_fail;
        self.terms.sticks &= !eligible.is_disputed;
        self.is_disputed |= eligible.is_disputed;
        self.by.extend(eligible.by);
    }
}

/// Endpoints that get new connections.
struct Eligible {
    by: BTreeSet<(u8, u8)>,
    /// Whether there may be none of them.
    may_fail: bool,
    is_disputed: bool,
}

/// One call of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Creates (if it is new) or changes a Service.
    Service {
        /// Its number.
        service: u8,
        /// Its new state.
        to: Service,
        /// Whether it does not exist yet.
        is_new: bool,
    },
    /// Deletes a Service.
    DeleteService(u8),
    /// Annotates a Service.
    Annotate(u8),
    /// Creates (if it is new) or replaces a slice.
    Slice {
        /// Its number.
        slice: u8,
        /// Its new state.
        to: Slice,
        /// Whether it does not exist yet.
        is_new: bool,
    },
    /// Deletes a slice.
    DeleteSlice(u8),
}

/// The Service that has an address of a load balancer.
pub const BALANCED: u8 = 1;

impl World {
    /// The first state: each Service has two slices with one backend each, and shares backends with the next one; two have node
    /// ports.
    #[must_use]
    pub fn first() -> Self {
        let mut world = Self::default();
        for service in 0..SERVICES {
            let node_port = match service {
                0 => Some(0),
                3 => Some(1),
                _ => None,
            };
            let first = Service {
                node_port,
                ..Service::default()
            };
            world.services.insert(service, first);
            for part in 0..2 {
                let endpoint = Endpoint {
                    backend: (service + part) % BACKENDS,
                    condition: Condition::Ready,
                };
                let slice = Slice {
                    of: service,
                    endpoints: Some(vec![endpoint]),
                };
                world.slices.insert(2 * service + part, slice);
            }
        }
        world
    }

    /// The calls that make all of it, where the API has nothing of it yet.
    #[must_use]
    pub fn creations(&self) -> Vec<Call> {
        Self::default().calls_to(self)
    }

    /// The calls that a write makes, in turn; none if it changes nothing. A fault makes none.
    #[must_use]
    pub fn calls(&self, does: &Does) -> Vec<Call> {
        match does {
            Does::Fault(_) => Vec::new(),
            Does::Annotate(service) => {
                let is_there = self.services.contains_key(service);
                is_there.then_some(Call::Annotate(*service)).into_iter().collect()
            }
            Does::Service(write) => {
                let before = self.services.get(&write.service);
                match write.to {
                    None => before
                        .map(|_| Call::DeleteService(write.service))
                        .into_iter()
                        .collect(),
                    Some(to) if before == Some(&to) => Vec::new(),
                    Some(to) => {
                        let taken = to.node_port.and_then(|port| self.holder(port));
                        let taken = taken.filter(|holder| *holder != write.service);
                        let given_up = taken.map(|service| Call::Service {
                            service,
                            to: Service {
                                node_port: None,
                                ..self.services[&service]
                            },
                            is_new: false,
                        });
                        let write = Call::Service {
                            service: write.service,
                            to,
                            is_new: before.is_none(),
                        };
                        given_up.into_iter().chain([write]).collect()
                    }
                }
            }
            Does::Slice(write) => {
                let before = self.slices.get(&write.slice);
                match &write.to {
                    None => before
                        .map(|_| Call::DeleteSlice(write.slice))
                        .into_iter()
                        .collect(),
                    Some(to) if before == Some(to) => Vec::new(),
                    Some(to) => vec![Call::Slice {
                        slice: write.slice,
                        to: to.clone(),
                        is_new: before.is_none(),
                    }],
                }
            }
        }
    }

    /// The state after a call.
    #[must_use]
    pub fn after(&self, call: &Call) -> Self {
        let mut next = self.clone();
        match call {
            Call::Service { service, to, .. } => drop(next.services.insert(*service, *to)),
            Call::Annotate(_) => {}
            Call::DeleteService(service) => drop(next.services.remove(service)),
            Call::Slice { slice, to, .. } => drop(next.slices.insert(*slice, to.clone())),
            Call::DeleteSlice(slice) => drop(next.slices.remove(slice)),
        }
        next
    }

    /// The calls that bring it to another state, in turn: a node port is free before another Service gets it.
    #[must_use]
    pub fn calls_to(&self, to: &Self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        let mut now = self.clone();
        let mut call = |call: Call| {
            now = now.after(&call);
            calls.push(call);
        };
        for (&service, before) in &self.services {
            match to.services.get(&service) {
                None => call(Call::DeleteService(service)),
                Some(wanted) if before.node_port.is_some() && before.node_port != wanted.node_port => {
                    call(Call::Service {
                        service,
                        to: Service {
                            node_port: None,
                            ..*before
                        },
                        is_new: false,
                    });
                }
                Some(_) => {}
            }
        }
        for slice in self.slices.keys() {
            if !to.slices.contains_key(slice) {
                call(Call::DeleteSlice(*slice));
            }
        }
        for (&service, wanted) in &to.services {
            let before = now.services.get(&service);
            if before != Some(wanted) {
                let is_new = before.is_none();
                calls.push(Call::Service {
                    service,
                    to: *wanted,
                    is_new,
                });
            }
        }
        for (&slice, wanted) in &to.slices {
            let before = now.slices.get(&slice);
            if before != Some(wanted) {
                let is_new = before.is_none();
                calls.push(Call::Slice {
                    slice,
                    to: wanted.clone(),
                    is_new,
                });
            }
        }
        calls
    }

    /// The Service that has a node port.
    fn holder(&self, port: u8) -> Option<u8> {
        let has = |(_, service): &(&u8, &Service)| service.node_port == Some(port);
        self.services.iter().find(has).map(|(number, _)| *number)
    }

    /// The Service that a frontend is of now.
    #[must_use]
    pub fn owner(&self, front: Front) -> Option<u8> {
        match front {
            Front::ClusterIp(service) | Front::LoadBalancer(service) => {
                self.services.contains_key(&service).then_some(service)
            }
            Front::NodePort(port) => self.holder(port),
        }
    }

    /// What a frontend is to a client. `at`: the node at whose address it is, if it is at one's. Backends are dealt to `nodes` in turn.
    #[must_use]
    pub fn served(&self, front: Front, client: Client, at: Option<u8>, nodes: u8) -> Served {
        let Some(service) = self.owner(front) else {
            return Served::default();
        };
        let Service {
            affinity,
            internal_local,
            external_local,
            ..
        } = self.services[&service];
        let all = || self.eligible(service, |_| true);
        let near = |node: u8| self.eligible(service, |backend| backend % nodes == node);
        let mut served = Served::default();
        match (front, client) {
            (Front::ClusterIp(_), _) => {
                served.terms.keeps_source = matches!(client, Client::Pod(_));
                served.terms.sticks = affinity;
                served.add(match client.node() {
                    Some(node) if internal_local => near(node),
                    _ => all(),
                });
            }
            (Front::NodePort(_) | Front::LoadBalancer(_), Client::Outside) if external_local => {
                served.terms.keeps_source = true;
                if let Some(node) = at {
                    served.terms.sticks = affinity;
                    served.add(near(node));
                } else {
                    // On whichever node it comes in, each time on another one; controllers withdraw it from those without a backend.
                    served.terms.may_cut = true;
                    for node in 0..nodes {
                        let near = near(node);
                        served.terms.may_fail |= near.by.is_empty();
                        served.add(near);
                    }
                }
            }
            (Front::NodePort(_), Client::Pod(_) | Client::Host(_)) if external_local => {
                // Pods of another node that has a backend are served; the rest is left to implementations.
                let is_pods = matches!(client, Client::Pod(_)) && client.node() != at;
                served.terms.may_fail = !is_pods;
                served.is_disputed = true;
                if let Some(node) = at {
                    let here = near(node);
                    served.terms.may_fail |= here.by.is_empty();
                    served.add(here);
                }
                served.add(all());
            }
            // "In-cluster traffic … gets Cluster semantics", ServiceSpec.externalTrafficPolicy.
            (Front::NodePort(_) | Front::LoadBalancer(_), _) => served.add(all()),
        }
        served
    }

    /// Backends of a Service that get new connections: of those that are wanted the ready ones, or else those that still serve while
    /// they terminate (KEP-1669). With the number of the Service, whose port they listen on.
    fn eligible(&self, service: u8, is_wanted: impl Fn(u8) -> bool) -> Eligible {
        let mut conditions: BTreeMap<u8, BTreeSet<Condition>> = BTreeMap::new();
        let slices = self.slices.values().filter(|slice| slice.of == service);
        for endpoint in slices.flat_map(|slice| slice.endpoints.iter().flatten()) {
            if is_wanted(endpoint.backend) {
                conditions
                    .entry(endpoint.backend)
                    .or_default()
                    .insert(endpoint.condition);
            }
        }
        let is_ready = |one: &Condition| one.fields().0;
        let terminates = |one: &Condition| *one == Condition::Terminating;
        let those = |test: &dyn Fn(&BTreeSet<Condition>) -> bool| -> BTreeSet<(u8, u8)> {
            let found = conditions.iter().filter(|(_, all)| test(all));
            found.map(|(backend, _)| (service, *backend)).collect()
        };
        let mut by = those(&|all| all.iter().any(is_ready));
        let is_any_ready = !those(&|all| all.iter().all(is_ready)).is_empty();
        if !is_any_ready {
            by.extend(those(&|all| all.iter().any(terminates)));
        }
        let is_any_certain = is_any_ready || !those(&|all| all.iter().all(terminates)).is_empty();
        let is_disputed = |all: &BTreeSet<Condition>| {
            all.iter().any(is_ready) != all.iter().all(is_ready)
                || all.iter().any(terminates) != all.iter().all(terminates)
        };
        Eligible {
            may_fail: !is_any_certain && !by.is_empty(),
            is_disputed: conditions.values().any(is_disputed),
            by,
        }
    }

    /// Endpoints that may get connections, as their conditions are, each after the number of its Service.
    #[must_use]
    pub fn listed(&self) -> BTreeSet<(u8, u8)> {
        let serving = |endpoint: &&Endpoint| {
            let (ready, serving, _) = endpoint.condition.fields();
            ready || serving
        };
        let of = |slice: &Slice| {
            let endpoints = slice.endpoints.iter().flatten().filter(serving);
            endpoints
                .map(|endpoint| (slice.of, endpoint.backend))
                .collect::<Vec<_>>()
        };
        self.slices.values().flat_map(of).collect()
    }

    /// All frontends, whether they are any Service's or not.
    #[must_use]
    pub fn fronts(is_balanced: bool) -> Vec<Front> {
        let balanced = is_balanced.then_some(Front::LoadBalancer(BALANCED));
        (0..SERVICES)
            .map(Front::ClusterIp)
            .chain((0..NODE_PORTS).map(Front::NodePort))
            .chain(balanced)
            .collect()
    }
}

/// Services of a namespace: those that a slice of one of them can be labelled with.
#[must_use]
pub fn of_namespace(namespace: Namespace) -> Vec<u8> {
    (0..SERVICES)
        .filter(|service| HOMES[usize::from(*service)].0 == namespace)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::generate::{Wish, schedule};

    /// Service 0 has a node port, and backends 0 and 1: of two nodes, one each. Its endpoint on the second node is in this condition.
    fn world(to: Service, condition: Condition) -> World {
        let mut world = World::first();
        let node_port = Some(0);
        world.services.insert(0, Service { node_port, ..to });
        for (slice, backend, condition) in [(0, 0, Condition::Ready), (1, 1, condition)] {
            let endpoints = Some(vec![Endpoint { backend, condition }]);
            world.slices.insert(slice, Slice { of: 0, endpoints });
        }
        world
    }

    fn by(served: &Served) -> Vec<u8> {
        served.by.iter().map(|(_, backend)| *backend).collect()
    }

    const CLIENTS: [Client; 5] = [
        Client::Pod(0),
        Client::Pod(1),
        Client::Host(0),
        Client::Host(1),
        Client::Outside,
    ];

    #[test]
    fn internal_policy_is_for_cluster_ips_and_clients_of_each_node() {
        let internal = Service {
            internal_local: true,
            affinity: true,
            ..Service::default()
        };
        let world = world(internal, Condition::Unready);
        for client in CLIENTS {
            let at_node_port = world.served(Front::NodePort(0), client, Some(1), 2);
            assert_eq!(by(&at_node_port), [0], "{client:?}");
            assert_eq!(at_node_port.terms, Terms::default());
        }
        let near = CLIENTS.map(|client| by(&world.served(Front::ClusterIp(0), client, None, 2)));
        assert_eq!(near[..4], [vec![0], vec![], vec![0], vec![]]);
        let terms = CLIENTS.map(|client| world.served(Front::ClusterIp(0), client, None, 2).terms);
        assert!(terms.iter().all(|terms| terms.sticks && !terms.may_fail));
        assert_eq!(
            terms.map(|terms| terms.keeps_source),
            [true, true, false, false, false]
        );
    }

    #[test]
    fn external_policy_is_for_clients_outside() {
        let external = Service {
            external_local: true,
            affinity: true,
            ..Service::default()
        };
        let world = world(external, Condition::Unready);
        let at = |node| world.served(Front::NodePort(0), Client::Outside, Some(node), 2);
        assert_eq!((by(&at(0)), by(&at(1))), (vec![0], vec![]));
        let terms = Terms {
            keeps_source: true,
            sticks: true,
            ..Terms::default()
        };
        assert_eq!([at(0).terms, at(1).terms], [terms; 2]);
        // Inside, pods of another node are served by the node port of one that has a backend; the rest differs.
        let served = |at: u8| CLIENTS.map(|client| world.served(Front::NodePort(0), client, Some(at), 2));
        let must = |at: u8| served(at).map(|served| !served.terms.may_fail);
        assert_eq!(must(0), [false, true, false, false, true]);
        assert_eq!(must(1), [false, false, false, false, true]);
        // By which backends, too.
        assert_eq!(
            served(0).map(|served| served.is_exact()),
            [false, false, false, false, true]
        );
        for client in &CLIENTS[..4] {
            assert_eq!(by(&world.served(Front::NodePort(0), *client, Some(1), 2)), [0]);
            assert_eq!(by(&world.served(Front::ClusterIp(0), *client, None, 2)), [0]);
        }
    }

    #[test]
    fn an_address_of_a_load_balancer_comes_in_on_any_node() {
        let external = Service {
            external_local: true,
            ..Service::default()
        };
        for (condition, all, may_fail) in [
            (Condition::Ready, vec![0, 1], false),
            (Condition::Unready, vec![0], true),
        ] {
            let mut world = world(external, condition);
            let service = world.services[&0];
            world.services.insert(BALANCED, service);
            for slice in world.slices.values_mut() {
                slice.of = if slice.of == 0 { BALANCED } else { 0 };
            }
            let outside = world.served(Front::LoadBalancer(BALANCED), Client::Outside, None, 2);
            assert_eq!((by(&outside), outside.terms.may_fail), (all.clone(), may_fail));
            assert!(outside.terms.keeps_source && !outside.terms.sticks);
            let inside = world.served(Front::LoadBalancer(BALANCED), Client::Pod(1), None, 2);
            assert_eq!((by(&inside), inside.terms), (all, Terms::default()));
        }
    }

    #[test]
    fn terminating_endpoints_serve_where_no_ready_one_is_wanted() {
        let internal = Service {
            internal_local: true,
            ..Service::default()
        };
        let world = world(internal, Condition::Terminating);
        let near = CLIENTS.map(|client| by(&world.served(Front::ClusterIp(0), client, None, 2)));
        assert_eq!(near[..4], [vec![0], vec![1], vec![0], vec![1]]);
        let all = world.served(Front::NodePort(0), Client::Outside, Some(1), 2);
        assert_eq!(by(&all), [0]);
    }

    #[test]
    fn an_endpoint_without_serving_is_served_if_it_is_ready_and_not_while_it_terminates() {
        for (condition, expected) in [(Condition::Published, vec![0, 1]), (Condition::Stopped, vec![0])] {
            let mut world = world(Service::default(), condition);
            let at = |world: &World| by(&world.served(Front::ClusterIp(0), Client::Pod(0), None, 2));
            assert_eq!(at(&world), expected);
            world.slices.remove(&0);
            assert_eq!(at(&world), expected[1..], "not a last resort either");
        }
    }

    #[test]
    fn which_of_two_conditions_counts_is_left_to_implementations() {
        let affinity = Service {
            affinity: true,
            ..Service::default()
        };
        let mut world = world(affinity, Condition::Unready);
        let endpoint = Endpoint {
            backend: 1,
            condition: Condition::Ready,
        };
        // Of Service 1, until it moves.
        let slice = Slice {
            of: 0,
            endpoints: Some(vec![endpoint]),
        };
        world.slices.insert(2, slice);
        let at = |world: &World| world.served(Front::ClusterIp(0), Client::Pod(0), None, 2);
        let served = at(&world);
        assert_eq!((by(&served), served.is_exact()), (vec![0, 1], false));
        assert_eq!((served.terms.may_fail, served.terms.sticks), (false, false));
        world.slices.remove(&0);
        let served = at(&world);
        assert_eq!((by(&served), served.terms.may_fail), (vec![1], true));
    }

    #[test]
    fn each_state_can_be_brought_to_each_other() {
        let wish = Wish {
            lasts_ms: 60_000,
            kinds: BTreeSet::new(),
            nodes: 2,
            moves: true,
        };
        let mut world = World::first();
        let mut all = vec![World::default(), world.clone()];
        for action in schedule(3, &wish).actions {
            for call in world.calls(&action.does) {
                world = world.after(&call);
            }
            all.push(world.clone());
        }
        for from in &all {
            for to in &all {
                let mut now = from.clone();
                for call in from.calls_to(to) {
                    if let Call::Service { service, to, .. } = &call
                        && let Some(port) = to.node_port
                    {
                        assert!(now.holder(port).is_none_or(|holder| holder == *service), "{call}");
                    }
                    now = now.after(&call);
                }
                assert_eq!(&now, to);
            }
        }
    }
}
