//! The law of order: what a program that is running can see while the maps are written.
//!
//! A program reads an address, then a frontend, then its service, then a slot, then a backend, and anything may be written in
//! between. A barrier waits for every program that was running. So whatever a program could have read since the
//! last barrier still counts: a slot may go only when no value of its service since then led to it, a number may
//! come back only when nothing carries it and nothing led to it since then. The memory of a frontend that was
//! replaced or deleted goes to the next put, so none may follow before a barrier; addresses likewise. An address is
//! there for as long as it has frontends: without it a packet to one of them would be routed on.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey};

use super::memory::Entries;

/// What programs can have read since the last barrier, and what was done against the law.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Services that a frontend named.
    named: BTreeSet<ServiceId>,
    /// Values that services had.
    values: BTreeMap<ServiceId, BTreeSet<Service>>,
    /// Whether a frontend was replaced or deleted.
    frontend_freed: bool,
    /// Whether an address was replaced or deleted.
    address_freed: bool,
    violations: Vec<String>,
}

impl Order {
    /// With what is in the maps.
    pub(super) fn begin(entries: &Entries) -> Self {
        Self::after_barrier(entries, Self::default())
    }

    /// Programs that ran before the barrier have ended: only what is in the maps counts.
    pub(super) fn after_barrier(entries: &Entries, before: Self) -> Self {
        Self {
            named: entries
                .frontends
                .values()
                .flat_map(|frontend| [frontend.internal, frontend.external])
                .collect(),
            values: entries
                .services
                .iter()
                .map(|(&id, &value)| (id, BTreeSet::from([value])))
                .collect(),
            frontend_freed: false,
            address_freed: false,
            violations: before.violations,
        }
    }

    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Whether a program can be on its way to a slot: by a frontend, and a value of the service.
    fn reachable(&self, key: SlotKey) -> bool {
        let leads = |value: &Service| value.generation == key.generation && key.index < value.slots;
        self.named.contains(&key.service)
            && self
                .values
                .get(&key.service)
                .is_some_and(|values| values.iter().any(leads))
    }

    fn check(&mut self, lawful: bool, sentence: impl FnOnce() -> String) {
        if !lawful {
            self.violations.push(sentence());
        }
    }

    pub(super) fn put_address(&mut self, entries: &Entries, address: Address, flags: u32) {
        self.check(flags != 0, || format!("address {address:?} put without flags"));
        self.check(!self.address_freed, || {
            format!("address {address:?} put where a program may still read one that is gone")
        });
        self.address_freed |= entries.addresses.contains_key(&address);
    }

    pub(super) fn delete_address(&mut self, entries: &Entries, address: Address) {
        let first = FrontendKey {
            address,
            port: Port([0; 2]),
            protocol: 0,
            pad: 0,
        };
        let next = entries.frontends.range(first..).next();
        let used = next.is_some_and(|(key, _)| key.address == address);
        self.check(!used, || {
            format!("address {address:?} deleted before its frontends")
        });
        self.address_freed |= entries.addresses.contains_key(&address);
    }

    pub(super) fn put_frontend(&mut self, entries: &Entries, key: FrontendKey, value: Frontend) {
        let services = [value.internal, value.external];
        for id in services.into_iter().filter(|&id| id != 0) {
            let there = entries
                .services
                .get(&id)
                .is_some_and(|service| service.generation != 0);
            self.check(there, || format!("frontend {key:?} put before its service {id}"));
        }
        self.check(services != [0; 2], || {
            format!("frontend {key:?} put without a service")
        });
        self.check(entries.addresses.contains_key(&key.address), || {
            format!("frontend {key:?} put before its address")
        });
        self.check(!self.frontend_freed, || {
            format!("frontend {key:?} put where a program may still read one that is gone")
        });
        self.frontend_freed |= entries.frontends.contains_key(&key);
        self.named.extend(services);
    }

    pub(super) fn delete_frontend(&mut self, entries: &Entries, key: FrontendKey) {
        self.frontend_freed |= entries.frontends.contains_key(&key);
    }

    pub(super) fn put_service(&mut self, entries: &Entries, id: ServiceId, value: Service) {
        self.check(id != 0 && value.generation != 0, || {
            format!("service {id} put as {value:?}")
        });
        for index in 0..value.slots {
            let key = SlotKey {
                service: id,
                generation: value.generation,
                index,
            };
            let backend = entries
                .slots
                .get(&key)
                .and_then(|backend| entries.backends.get(backend));
            self.check(backend.is_some(), || {
                format!("service {id} switched to {value:?} without {key:?}")
            });
        }
        let current = entries.services.get(&id);
        let reused = current.is_none() && self.named.contains(&id);
        self.check(!reused, || {
            format!("service {id} reused while a program can still hold it")
        });
        let backwards = current.is_some_and(|current| {
            // Generations count round; the newer one is less than half the circle ahead.
            value.generation.wrapping_sub(current.generation).cast_signed() <= 0
        });
        self.check(!backwards, || {
            format!("service {id} goes from {current:?} back to {value:?}")
        });
        self.values.entry(id).or_default().insert(value);
    }

    pub(super) fn delete_service(&mut self, entries: &Entries, id: ServiceId) {
        let idle = !self.named.contains(&id) || !entries.services.contains_key(&id);
        self.check(idle, || {
            format!("service {id} deleted while a program can still hold it")
        });
        self.values.remove(&id);
    }

    pub(super) fn put_slot(&mut self, entries: &Entries, key: SlotKey, backend: BackendId) {
        let there = entries.backends.contains_key(&backend);
        self.check(there, || format!("{key:?} put before its backend {backend}"));
        let changed = entries.slots.get(&key).is_some_and(|&before| before != backend);
        let used = changed && self.reachable(key);
        self.check(!used, || {
            format!("{key:?} overwritten while a program can read it")
        });
    }

    pub(super) fn delete_slot(&mut self, entries: &Entries, key: SlotKey) {
        let used = entries.slots.contains_key(&key) && self.reachable(key);
        self.check(!used, || format!("{key:?} deleted while a program can read it"));
    }

    pub(super) fn put_backend(&mut self, entries: &Entries, id: BackendId, value: Backend) {
        self.check(id != 0, || "backend 0 put".to_owned());
        let changed = entries.backends.get(&id) != Some(&value);
        let reused = changed && entries.slots.values().any(|&carried| carried == id);
        self.check(!reused, || format!("backend {id} reused while a slot carries it"));
    }

    pub(super) fn delete_backend(&mut self, entries: &Entries, id: BackendId) {
        let there = entries.backends.contains_key(&id);
        let carried = there && entries.slots.values().any(|&carried| carried == id);
        self.check(!carried, || {
            format!("backend {id} deleted while a slot carries it")
        });
    }
}
