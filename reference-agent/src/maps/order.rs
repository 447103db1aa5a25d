//! The law of order: what a running program can read while the maps are written.
//!
//! A program reads an address, then a frontend, then its ranges of clients and its service, then a slot, then a
//! backend, and anything may be written in between; the agent's own sockets go from KEPT to a slot. A barrier waits
//! for every program that was running. So whatever a program could have read since the last barrier still counts: a
//! slot may go only when no value of its service since then led to it, a number may come back only when nothing
//! carries it and nothing led to it since then. The memory of an entry that was replaced or deleted goes to the next
//! put, so none may follow before a barrier where programs can still have found the old one. An address is there for
//! as long as it has frontends: without it a packet to one of them would be routed on. Where a frontend has affinity,
//! each backend of the current generation is noted as a member.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{
    Address, Backend, BackendId, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey, SourceKey,
};

use super::memory::Entries;
use crate::resolve;

/// What programs can have read since the last barrier, and what was done against the law.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Services that a frontend named.
    named: BTreeSet<ServiceId>,
    /// Services that a frontend with affinity named.
    affine: BTreeSet<ServiceId>,
    /// Values that services had.
    values: BTreeMap<ServiceId, BTreeSet<Service>>,
    /// Values that KEPT had.
    kept: BTreeMap<ServiceId, BTreeSet<Service>>,
    /// Whether an entry was replaced or deleted whose memory the next put may get.
    freed: Freed,
    violations: Vec<String>,
}

/// By map.
#[derive(Debug, Default)]
struct Freed {
    frontends: bool,
    addresses: bool,
    backends: bool,
    kept: bool,
}

impl Order {
    /// With what is in the maps.
    pub(super) fn begin(entries: &Entries) -> Self {
        Self::after_barrier(entries, Self::default())
    }

    /// Programs that ran before the barrier have ended: only what is in the maps counts.
    pub(super) fn after_barrier(entries: &Entries, before: Self) -> Self {
        let named = |frontends: &mut dyn Iterator<Item = &Frontend>| {
            frontends
                .flat_map(|frontend| [frontend.internal, frontend.external])
                .collect()
        };
        let values = |map: &BTreeMap<ServiceId, Service>| {
            map.iter()
                .map(|(&id, &value)| (id, BTreeSet::from([value])))
                .collect()
        };
        let mut affine = entries
            .frontends
            .values()
            .filter(|frontend| frontend.affinity_seconds != 0);
        Self {
            named: named(&mut entries.frontends.values()),
            affine: named(&mut affine),
            values: values(&entries.services),
            kept: values(&entries.kept),
            freed: Freed::default(),
            violations: before.violations,
        }
    }

    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Whether a program can be on its way to a slot: by a frontend, and a value of the service or of KEPT.
    fn reachable(&self, key: SlotKey) -> bool {
        let leads = |value: &Service| value.generation == key.generation && key.index < value.slots;
        let values = |map: &BTreeMap<ServiceId, BTreeSet<Service>>| {
            map.get(&key.service)
                .is_some_and(|values| values.iter().any(leads))
        };
        self.named.contains(&key.service) && (values(&self.values) || values(&self.kept))
    }

    /// Whether a program can ask for a member: by a frontend with affinity, and a value of the service.
    fn asked_for(&self, key: SlotKey) -> bool {
        let current = |value: &Service| value.generation == key.generation && value.slots != 0;
        self.affine.contains(&key.service)
            && self
                .values
                .get(&key.service)
                .is_some_and(|values| values.iter().any(current))
    }

    fn check(&mut self, lawful: bool, sentence: impl FnOnce() -> String) {
        if !lawful {
            self.violations.push(sentence());
        }
    }

    pub(super) fn put_address(&mut self, entries: &Entries, address: Address) {
        self.check(!self.freed.addresses, || {
            format!("address {address:?} put where a program may still read one that is gone")
        });
        self.freed.addresses |= entries.addresses.contains_key(&address);
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
        self.freed.addresses |= entries.addresses.contains_key(&address);
    }

    pub(super) fn put_frontend(&mut self, entries: &Entries, key: FrontendKey, value: Frontend) {
        let services = [value.internal, value.external];
        for id in services {
            let there = entries
                .services
                .get(&id)
                .filter(|service| service.generation != 0);
            self.check(there.is_some(), || {
                format!("frontend {key:?} put before its service {id}")
            });
            if value.affinity_seconds != 0
                && let Some(&service) = there
            {
                self.check_members(entries, id, service);
            }
        }
        let node_port = [Address::UNSPECIFIED_V4, Address::UNSPECIFIED_V6].contains(&key.address);
        let has_address = node_port || entries.addresses.contains_key(&key.address);
        self.check(has_address, || format!("frontend {key:?} put before its address"));
        self.check(!self.freed.frontends, || {
            format!("frontend {key:?} put where a program may still read one that is gone")
        });
        self.freed.frontends |= entries.frontends.contains_key(&key);
        self.named.extend(services);
        if value.affinity_seconds != 0 {
            self.affine.extend(services);
        }
    }

    pub(super) fn delete_frontend(&mut self, entries: &Entries, key: FrontendKey) {
        self.freed.frontends |= entries.frontends.contains_key(&key);
    }

    /// Each backend of a generation is noted as one of it.
    fn check_members(&mut self, entries: &Entries, id: ServiceId, service: Service) {
        for backend in slots(entries, id, service).flatten() {
            let member = SlotKey::member(id, service.generation, backend);
            self.check(entries.slots.contains_key(&member), || {
                format!("service {id} has affinity, and {service:?} without backend {backend} as a member")
            });
        }
    }

    /// Every slot that a value names is there, and its backend.
    fn check_slots(&mut self, entries: &Entries, id: ServiceId, value: Service) {
        for (index, backend) in slots(entries, id, value).enumerate() {
            let there = backend.is_some_and(|backend| entries.backends.contains_key(&backend));
            self.check(there, || {
                format!("service {id} switched to {value:?} without slot {index}")
            });
        }
    }

    pub(super) fn put_service(&mut self, entries: &Entries, id: ServiceId, value: Service) {
        self.check(id != 0 && value.generation != 0, || {
            format!("service {id} put as {value:?}")
        });
        self.check_slots(entries, id, value);
        if self.affine.contains(&id) {
            self.check_members(entries, id, value);
        }
        let current = entries.services.get(&id);
        if current.is_none() {
            self.check(!self.named.contains(&id), || {
                format!("service {id} reused while a program can still hold it")
            });
            let carried = entries.kept.contains_key(&id)
                || entries.sources.keys().any(|key| key.service == id.to_be_bytes());
            self.check(!carried, || {
                format!("service {id} reused while KEPT or SOURCES has it")
            });
        }
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
        let member = key.index & SlotKey::MEMBER != 0;
        let own = !member || key.index ^ SlotKey::MEMBER == backend;
        self.check(own, || format!("{key:?} put with backend {backend}"));
        let changed = entries.slots.get(&key).is_some_and(|&before| before != backend);
        let used = changed && self.reachable(key);
        self.check(!used, || {
            format!("{key:?} overwritten while a program can read it")
        });
    }

    pub(super) fn delete_slot(&mut self, entries: &Entries, key: SlotKey) {
        let member = key.index & SlotKey::MEMBER != 0;
        let reachable = if member {
            self.asked_for(key)
        } else {
            self.reachable(key)
        };
        let used = entries.slots.contains_key(&key) && reachable;
        self.check(!used, || format!("{key:?} deleted while a program can read it"));
    }

    pub(super) fn put_backend(&mut self, entries: &Entries, id: BackendId, value: Backend) {
        self.check(id != 0, || "backend 0 put".to_owned());
        self.check(!self.freed.backends, || {
            format!("backend {id} put where a program may still read one that is gone")
        });
        let before = entries.backends.get(&id);
        let reused = before.is_some_and(|before| *before != value)
            && entries.slots.values().any(|&carried| carried == id);
        self.check(!reused, || format!("backend {id} reused while a slot carries it"));
        self.freed.backends |= before.is_some();
    }

    /// The next put may reuse its memory at once: no slot has it, and a program that has found it by the number of a
    /// connection may find it gone.
    pub(super) fn delete_backend(&mut self, entries: &Entries, id: BackendId) {
        let there = entries.backends.contains_key(&id);
        let carried = there && entries.slots.values().any(|&carried| carried == id);
        self.check(!carried, || {
            format!("backend {id} deleted while a slot carries it")
        });
    }

    pub(super) fn put_source(&mut self, key: SourceKey) {
        self.check(resolve::range(key).is_some(), || format!("{key:?} is no range"));
    }

    pub(super) fn put_kept(&mut self, entries: &Entries, id: ServiceId, value: Service) {
        self.check(value.generation != 0 && value.slots != 0, || {
            format!("nothing kept of service {id}: {value:?}")
        });
        self.check_slots(entries, id, value);
        self.check(!self.freed.kept, || {
            format!("service {id} kept where a program may still read one that is gone")
        });
        self.freed.kept |= entries.kept.contains_key(&id);
        self.kept.entry(id).or_default().insert(value);
    }

    pub(super) fn delete_kept(&mut self, entries: &Entries, id: ServiceId) {
        self.freed.kept |= entries.kept.contains_key(&id);
    }
}

/// The backends of a value's slots; `None`: one is missing. A corrupt value may name four billion, of which at most the
/// map's capacity is read.
fn slots(entries: &Entries, id: ServiceId, value: Service) -> impl Iterator<Item = Option<BackendId>> {
    let indexes = 0..value.slots.min(lb_abi::capacity::SLOTS);
    indexes.map(move |index| {
        let key = SlotKey {
            service: id,
            generation: value.generation,
            index,
        };
        entries.slots.get(&key).copied()
    })
}
