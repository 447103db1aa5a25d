//! The choice of a frontend, of a backend and of a port.

use std::net::IpAddr;

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Counter, Flow, Frontend, FrontendKey, Service,
    ServiceId, SlotKey, SourceKey, Tuple, address_flags, flow_flags, frontend_flags, seen,
};

use super::{
    Device,
    decide::{Run, elapsed},
    known::over,
    ports::{self, Port},
    routes::alike,
};

/// Slot of a tuple where the slots are a Maglev table.
pub fn maglev_slot(tuple: &Tuple, slots: u32) -> u32 {
    let mut words = Vec::new();
    for octets in [tuple.source.octets(), tuple.destination.octets()] {
        for four in octets.chunks(4) {
            words.push(u32::from_be_bytes(four.try_into().expect("four bytes")));
        }
    }
    words.push(u32::from(tuple.source_port.get()) << 16 | u32::from(tuple.destination_port.get()));
    words.push(u32::from(tuple.protocol));
    words.push(0);
    let mut hash = 0x9e37_79b9_u32;
    for word in words {
        hash = (hash ^ word)
            .wrapping_mul(0x85eb_ca6b)
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^= hash >> 16;
    let slot = (u64::from(hash) * u64::from(slots)) >> 32;
    u32::try_from(slot).expect("less than the number of slots")
}

impl Run<'_> {
    /// The frontend of a destination, and its service port in this scope.
    pub(super) fn frontend(&self, tuple: &Tuple, external: bool) -> Option<(Frontend, ServiceId)> {
        let at = |address: Address| {
            let key = FrontendKey {
                address,
                port: tuple.destination_port,
                protocol: tuple.protocol,
                pad: 0,
            };
            let frontend = *self.state.frontends.get(&key)?;
            let service = if external {
                frontend.external
            } else {
                frontend.internal
            };
            Some((frontend, service))
        };
        let unspecified = IpAddr::from(tuple.destination).is_unspecified();
        // The unspecified address stands for loopback, where packets find no node ports.
        let loopback = unspecified || tuple.destination.is_loopback();
        let exact = at(tuple.destination).filter(|_| !unspecified);
        let node = self.flags(tuple.destination) & address_flags::NODE != 0 && !loopback;
        let found = match exact {
            None if node && tuple.destination.is_v4() => at(Address::UNSPECIFIED_V4),
            None if node => at(Address::UNSPECIFIED_V6),
            _ => exact,
        };
        found.filter(|(_, service)| *service != 0)
    }

    /// Whether a source is one of those that the frontend is for.
    pub(super) fn admits(&self, frontend: &Frontend, source: Address) -> bool {
        let service = match frontend.external {
            0 => frontend.internal,
            external => external,
        };
        self.is_in(service, source)
    }

    /// Whether an address is a node's or a pod's.
    pub(super) fn is_of_cluster(&self, source: Address) -> bool {
        self.is_in(SourceKey::CLUSTER, source)
    }

    fn is_in(&self, service: ServiceId, source: Address) -> bool {
        self.state.sources.iter().any(|range| {
            let bits = range.prefix_length.saturating_sub(32);
            range.prefix_length >= 32
                && range.service == service.to_be_bytes()
                && alike(range.address, source, bits)
        })
    }

    /// A backend, and the note of it for clients with affinity; `None` is a hole.
    pub(super) fn choose(
        &mut self,
        frontend: &Frontend,
        id: ServiceId,
        service: Service,
        tuple: &Tuple,
    ) -> Option<(BackendId, Backend)> {
        let client = AffinityKey {
            service: id,
            kind: 0,
            client: tuple.source,
        };
        let kept = (frontend.affinity_seconds != 0)
            .then(|| self.kept(frontend, &client, service))
            .flatten();
        let chosen = match kept {
            Some(kept) => kept,
            None if frontend.flags & frontend_flags::MAGLEV != 0 => {
                let index = maglev_slot(tuple, service.slots);
                self.slot(id, service, index)?
            }
            None => self.any(id, service, tuple)?,
        };
        if frontend.affinity_seconds != 0 {
            let affinity = Affinity {
                backend: chosen.0,
                seconds: self.input.now,
            };
            self.affinity.insert(client, affinity);
        }
        Some(chosen)
    }

    fn kept(
        &self,
        frontend: &Frontend,
        client: &AffinityKey,
        service: Service,
    ) -> Option<(BackendId, Backend)> {
        let affinity = self.state.affinity.get(client)?;
        let age = i64::from(elapsed(self.input.now, affinity.seconds));
        let member = SlotKey::member(client.service, service.generation, affinity.backend);
        let backend = *self.state.backends.get(&affinity.backend)?;
        let current = self.state.slots.contains_key(&member) && age <= i64::from(frontend.affinity_seconds);
        current.then_some((affinity.backend, backend))
    }

    fn slot(&self, id: ServiceId, service: Service, index: u32) -> Option<(BackendId, Backend)> {
        let key = SlotKey {
            service: id,
            generation: service.generation,
            index,
        };
        let id = *self.state.slots.get(&key)?;
        Some((id, *self.state.backends.get(&id)?))
    }

    /// A slot at random: the one that was taken, if it may be.
    fn any(&self, id: ServiceId, service: Service, tuple: &Tuple) -> Option<(BackendId, Backend)> {
        let slots: Vec<_> = (0..service.slots)
            .map(|index| self.slot(id, service, index))
            .collect();
        let stored = self.observed.flows.get(tuple);
        let new = stored.filter(|flow| self.state.flows.get(tuple) != Some(flow));
        let taken = new.map(|flow| flow.backend);
        let whole = || slots.iter().flatten();
        let same = whole().find(|(backend, _)| Some(*backend) == taken);
        // What was not stored may have been any of them, or a hole.
        let hole = slots.contains(&None).then_some(None);
        let any: Vec<_> = hole.into_iter().chain(whole().map(|slot| Some(*slot))).collect();
        same.copied().or_else(|| any[self.observed.pick % any.len()])
    }

    /// A port from which the tuple can be sent on, `to` being complete but for it: the one that was taken, if it is
    /// free. `None`: all that were tried are in use. `dispensable`: then the source stays as it is. `old`: the flow that is replaced.
    pub(super) fn allocate(
        &self,
        tuple: &Tuple,
        to: &Tuple,
        own_address: bool,
        dispensable: bool,
        old: Option<&Flow>,
    ) -> Option<u16> {
        let is_frontends = |key: &Tuple| {
            self.state.frontends.contains_key(&FrontendKey {
                address: key.destination,
                port: key.destination_port,
                protocol: key.protocol,
                pad: 0,
            })
        };
        let is_elsewhere = |key: &Tuple| is_frontends(key) || own_address && self.input.sockets.receive(key);
        let at = |port: u16| {
            let key = Tuple {
                source_port: lb_abi::Port::new(port),
                ..*to
            }
            .inverse();
            if is_elsewhere(&key) {
                Port::Taken
            } else if self.free(&key) {
                Port::Free
            } else if self.has_ended(&key) {
                Port::Ended(self.flows[&key].to.destination == tuple.source)
            } else {
                Port::Taken
            }
        };
        let is_allocated = |flow: &Flow| flow.flags & (flow_flags::SNAT | flow_flags::OTHER_PORT) != 0;
        // What it had before.
        let before = old.map(|old| old.to.inverse()).filter(|key| {
            let port = key.destination_port;
            let same = Tuple {
                source_port: port,
                ..*to
            }
            .inverse()
                == *key;
            let reply = self.state.flows.get(key).filter(|_| same);
            let is_its = |reply: &Flow| is_allocated(reply) && reply.to.inverse() == *tuple;
            let config = &self.state.config;
            let range = config.snat_first..=config.snat_last;
            reply.is_some_and(is_its) && range.contains(&port.get()) && !is_elsewhere(key)
        });
        if let Some(before) = before {
            return Some(before.destination_port.get());
        }
        let stored = self.observed.flows.get(tuple);
        let stayed = dispensable && stored.is_some_and(|flow| !is_allocated(flow));
        let none = stayed || self.observed.counter == Counter::DroppedPortsExhausted;
        let observed = stored.map(|flow| flow.to.source_port.get()).filter(|_| !none);
        let elsewhere = self.input.hook == Device::NodeIngress && to.source == tuple.source;
        ports::allocate(&self.state.config, elsewhere, at, observed, none)
    }

    /// Whether a reply's key is of no flow, or of one that is over.
    pub(super) fn free(&self, key: &Tuple) -> bool {
        self.holder(key).is_none()
    }

    /// Whether a reply's key is of a flow that both ends have closed, and that is quiet.
    fn has_ended(&self, key: &Tuple) -> bool {
        let there = self
            .flows
            .get(key)
            .filter(|there| there.flags & flow_flags::REPLY != 0);
        let forward = there.and_then(|there| self.flows.get(&there.to.inverse()));
        forward.is_some_and(|forward| {
            let has = |bits: u32| forward.seen & bits != 0;
            let closed = has(seen::RESET) || (has(seen::CLIENT_FIN) && has(seen::BACKEND_FIN));
            closed && elapsed(self.input.now, forward.last_seen) >= 2
        })
    }

    /// The forward tuple of the flow that holds a reply's key and is not over.
    pub(super) fn holder(&self, key: &Tuple) -> Option<Tuple> {
        // Without the client's entry that has just been found to be lost.
        let there = self.flows.get(key)?;
        if there.flags & flow_flags::REPLY == 0 {
            return (!over(key, there, self.input.now)).then_some(*key);
        }
        let forward_key = there.to.inverse();
        let held = match self.flows.get(&forward_key) {
            Some(forward) => !over(&forward_key, forward, self.input.now),
            None => elapsed(self.input.now, there.last_seen) < 2,
        };
        held.then_some(forward_key)
    }

    /// The node's address in a family; `None` if it has none.
    pub(super) fn node(&self, v4: bool) -> Option<Address> {
        let config = &self.state.config;
        let address = if v4 { config.node_v4 } else { config.node_v6 };
        (!IpAddr::from(address).is_unspecified()).then_some(address)
    }

    /// Whether an address is one of the node's own.
    pub(super) fn own(&self, address: Address) -> bool {
        self.flags(address) & address_flags::NODE != 0 || self.node(address.is_v4()) == Some(address)
    }
}
