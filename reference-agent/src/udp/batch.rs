//! Flows and sockets to be ended: pure.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::SocketAddr,
};

use lb_abi::{
    BackendId, Chosen, ChosenKey, Flow, FrontendKey, ServiceId, SocketRevnat, SocketRevnatKey, Tuple, UDP,
    flow_flags,
};

use super::{
    LiveMaps,
    lookup::{Lookup, address},
    opening::Unanswering,
};
use crate::{
    endpoint_address::{Protocol, TransportAddress, node_port},
    reconcile::{Departed, MovedFrontend},
};

/// Departed backends, each once for each service port, and moved frontends.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    departed: HashMap<(ServiceId, BackendId), DepartedBackend>,
    /// Moved frontends, with the backends that their sockets may be connected to now.
    moved: HashMap<FrontendKey, BTreeSet<TransportAddress>>,
    /// Whether there are more departed backends, which are not listed.
    unlisted_backends: bool,
    /// Whether there are more moved frontends, which are not listed.
    unlisted_frontends: bool,
    unanswering: Unanswering,
}

#[derive(Clone, Debug)]
struct DepartedBackend {
    backend: SocketAddr,
    frontends: BTreeSet<FrontendKey>,
}

impl Batch {
    /// How many UDP backends and frontends it has.
    pub fn of_udp(&self) -> usize {
        let unlisted = usize::from(self.unlisted_backends) + usize::from(self.unlisted_frontends);
        self.departed.len() + self.moved.len() + unlisted
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.of_udp() == 0 && self.unanswering.is_empty()
    }

    /// The TCP backends.
    pub(super) fn unanswering(&self) -> &Unanswering {
        &self.unanswering
    }

    /// Adds a departed backend. Beyond `most` it is not listed.
    pub fn add(&mut self, departed: Departed, most: usize) {
        let Departed {
            service,
            frontends,
            backend,
            id,
        } = departed;
        let keys: Vec<_> = frontends
            .into_iter()
            .map(TransportAddress::frontend_key)
            .collect();
        if backend.protocol == Protocol::Tcp {
            return self.unanswering.add(socket(&backend), keys, most);
        }
        // The Service that took these frontends over before has lost this backend since.
        for key in &keys {
            if let Some(backends) = self.moved.get_mut(key) {
                backends.remove(&backend);
            }
        }
        // The service port of an earlier start is not known.
        if service == 0 || (self.departed.len() >= most && !self.departed.contains_key(&(service, id))) {
            return self.add_unlisted_backends();
        }
        let backend = socket(&backend);
        let gone = self
            .departed
            .entry((service, id))
            .or_insert_with(|| DepartedBackend {
                backend,
                frontends: BTreeSet::new(),
            });
        // The number may be another backend's by now.
        gone.backend = backend;
        gone.frontends.extend(keys);
    }

    /// Adds a moved frontend, or updates it. Beyond `most` it is not listed.
    pub fn add_moved(&mut self, moved: MovedFrontend, most: usize) {
        let MovedFrontend { frontend, backends } = moved;
        let key = frontend.frontend_key();
        if self.moved.len() >= most && !self.moved.contains_key(&key) {
            return self.add_unlisted_frontends();
        }
        self.moved.insert(key, backends);
    }

    /// There are departed backends that are not listed.
    pub fn add_unlisted_backends(&mut self) {
        self.unlisted_backends = true;
    }

    /// There are moved frontends that are not listed.
    pub fn add_unlisted_frontends(&mut self) {
        self.unlisted_frontends = true;
    }

    /// Whether an entry of CONNTRACK is stale: its backend has departed from its service port and has not come back, or is not in
    /// the map any more, or its frontend is not its service port's any more.
    pub(super) fn is_stale_flow<L: LiveMaps>(&self, key: &Tuple, flow: &Flow, maps: &Lookup<'_, L>) -> bool {
        if key.protocol != UDP || flow.flags & flow_flags::OWN != 0 {
            return false;
        }
        let ((address, port), (frontend, frontend_port)) = if flow.flags & flow_flags::REPLY == 0 {
            (
                (flow.to.destination, flow.to.destination_port),
                (key.destination, key.destination_port),
            )
        } else {
            (
                (key.source, key.source_port),
                (flow.to.source, flow.to.source_port),
            )
        };
        let backend = SocketAddr::new(address.into(), port.get());
        let asked = FrontendKey {
            address: frontend,
            port: frontend_port,
            protocol: UDP,
            pad: 0,
        };
        let departed = self.departed.get(&(flow.service, flow.backend));
        departed.is_some_and(|gone| gone.backend == backend && maps.is_over(&asked, flow.service, backend))
            || (self.unlisted_backends && maps.is_others(flow.backend, Some(backend)))
            || self.has_moved(&asked, flow.service, maps)
    }

    /// Whether an entry of CHOSEN is stale, as one of CONNTRACK is.
    pub(super) fn is_stale_choice<L: LiveMaps>(
        &self,
        key: &ChosenKey,
        chosen: &Chosen,
        maps: &Lookup<'_, L>,
    ) -> bool {
        let departed = self.departed.get(&(chosen.service, chosen.backend));
        departed.is_some_and(|gone| maps.is_over(&key.frontend, chosen.service, gone.backend))
            || (self.unlisted_backends && maps.is_others(chosen.backend, None))
            || self.has_moved(&key.frontend, chosen.service, maps)
    }

    /// Whether the frontend that a client asked for has moved away from a service port.
    fn has_moved<L: LiveMaps>(&self, asked: &FrontendKey, service: ServiceId, maps: &Lookup<'_, L>) -> bool {
        let may_have = self.unlisted_frontends
            || self.moved.contains_key(asked)
            || self.moved.contains_key(&node_port(*asked));
        may_have && maps.leads_elsewhere(asked, service)
    }

    /// Sockets whose connections end, by backend. `serving` are the UDP backends of the maps; `noted` shows all sockets;
    /// the others are not held in memory.
    pub(super) fn sockets<L: LiveMaps, E>(
        &self,
        maps: &Lookup<'_, L>,
        serving: &HashSet<SocketAddr>,
        noted: impl FnOnce(&mut dyn FnMut(&SocketRevnatKey, &SocketRevnat)) -> Result<(), E>,
    ) -> Result<HashMap<SocketAddr, HashSet<u64>>, E> {
        let mut by_backend: HashMap<SocketAddr, Vec<&BTreeSet<FrontendKey>>> = HashMap::new();
        for gone in self.departed.values() {
            by_backend.entry(gone.backend).or_default().push(&gone.frontends);
        }
        let mut sockets: HashMap<SocketAddr, HashSet<u64>> = HashMap::new();
        noted(&mut |key, remembered| {
            if key.backend.protocol != UDP {
                return;
            }
            let (backend, asked) = (address(&key.backend), &remembered.frontend);
            // Connected to the backend's own address since.
            if (asked.address, asked.port) == (key.backend.address, key.backend.port) {
                return;
            }
            // A frontend at the address comes before the node port of that number.
            let as_node_port = || Some(node_port(*asked)).filter(|_| !maps.has_frontend(asked));
            let is_gone = self.unlisted_backends && !serving.contains(&backend);
            let departed = by_backend.get(&backend).is_some_and(|frontends| {
                let known = |frontend: &FrontendKey| frontends.iter().any(|set| set.contains(frontend));
                maps.is_one_of(asked, known) && maps.has_left_frontend(asked, backend)
            });
            let moved = self.moved.get(asked);
            let moved = moved.or_else(|| {
                let at_node_port = self.moved.get(&node_port(*asked));
                at_node_port.filter(|_| as_node_port().is_some())
            });
            let is_stale = match moved {
                // It led nowhere, and has passed to a Service since: the next batch has that.
                Some(backends) if backends.is_empty() && maps.frontend(asked).is_some() => departed,
                // The frontend has passed to another Service, whose backends decide.
                Some(backends) => !backends.contains(&TransportAddress {
                    protocol: Protocol::Udp,
                    address: backend.ip(),
                    port: backend.port(),
                }),
                None => departed || (self.unlisted_frontends && maps.frontend(asked).is_none()),
            };
            if is_gone || is_stale {
                sockets.entry(backend).or_default().insert(key.cookie);
            }
        })?;
        Ok(sockets)
    }
}

fn socket(at: &TransportAddress) -> SocketAddr {
    SocketAddr::new(at.address, at.port)
}

#[cfg(test)]
mod tests;
