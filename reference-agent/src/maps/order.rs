//! The law of order: what a program that is running can see while the maps are written.
//!
//! A program reads a frontend, then its service, then a slot, then a backend, and anything may be written in
//! between. A barrier waits for every program that was running. So whatever a program could have read since the
//! last barrier still counts: a slot may go only when no value of its service since then led to it, a number may
//! come back only when nothing carries it and nothing led to it since then. The memory of a frontend that was
//! replaced or deleted goes to the next put, so none may follow before a barrier.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey};

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
                .map(|frontend| frontend.service)
                .collect(),
            values: entries
                .services
                .iter()
                .map(|(&id, &value)| (id, BTreeSet::from([value])))
                .collect(),
            frontend_freed: false,
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

    pub(super) fn put_frontend(&mut self, entries: &Entries, key: FrontendKey, value: Frontend) {
        let there = entries
            .services
            .get(&value.service)
            .is_some_and(|service| service.generation != 0);
        self.check(there, || {
            format!("frontend {key:?} put before its service {}", value.service)
        });
        self.check(!self.frontend_freed, || {
            format!("frontend {key:?} put where a program may still read one that is gone")
        });
        self.frontend_freed |= entries.frontends.contains_key(&key);
        self.named.insert(value.service);
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
