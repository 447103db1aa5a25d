//! What the API has after some writes, the calls that bring it there, and what each frontend then serves. All of it is pure.

use std::collections::{BTreeMap, BTreeSet};

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
            world.services.insert(service, Service { node_port });
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
        let services = self.services.iter().map(|(service, to)| Call::Service {
            service: *service,
            to: *to,
            is_new: true,
        });
        let slices = self.slices.iter().map(|(slice, to)| Call::Slice {
            slice: *slice,
            to: to.clone(),
            is_new: true,
        });
        services.chain(slices).collect()
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
                            to: Service { node_port: None },
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

    /// Backends that new connections to a frontend may reach: the ready ones of its Service, or else those that still serve while
    /// they terminate (KEP-1669). With the number of the Service, whose port they listen on.
    #[must_use]
    pub fn serves(&self, front: Front) -> BTreeSet<(u8, u8)> {
        let Some(service) = self.owner(front) else {
            return BTreeSet::new();
        };
        let of = |wanted: Condition| -> BTreeSet<(u8, u8)> {
            let slices = self.slices.values().filter(|slice| slice.of == service);
            slices
                .flat_map(|slice| slice.endpoints.iter().flatten())
                .filter(|endpoint| endpoint.condition == wanted)
                .map(|endpoint| (service, endpoint.backend))
                .collect()
        };
        let ready = of(Condition::Ready);
        if ready.is_empty() {
            of(Condition::Terminating)
        } else {
            ready
        }
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
