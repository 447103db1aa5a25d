//! What is in the maps, by number.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lb_abi::{BackendId, Frontend, FrontendKey, ServiceId, SlotKey, capacity};

use super::{addresses::Addresses, backends::Backends};
use crate::{
    ids::IdAllocator,
    names::ObjectId,
    plan::{PortId, PortPlan},
    transport::Backend,
};

/// A port of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PortRef {
    pub(super) service: ObjectId,
    pub(super) port: PortId,
}

/// What is in the maps, and whom it is for.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) addresses: Addresses,
    pub(super) backends: Backends,
    pub(super) records: HashMap<ServiceId, Record>,
    /// FRONTENDS, as it is.
    pub(super) frontends: HashMap<FrontendKey, Frontend>,
    /// Whether an entry of FRONTENDS was replaced or deleted since the last barrier. A hash map gives its memory to
    /// the next put at once, where a program that found the old entry would read the new one.
    pub(super) frontend_freed: bool,
    /// FRONTENDS, as it should be.
    pub(super) wanted: HashMap<FrontendKey, PortRef>,
    /// Frontends that are somewhere where they should not be.
    pub(super) misplaced: BTreeSet<FrontendKey>,
    /// Slots that are no longer, or not yet, or never were current.
    pub(super) leaving_slots: BTreeMap<SlotKey, BackendId>,
    /// Records without a port, to be removed.
    pub(super) retired: BTreeSet<ServiceId>,
    /// Adopted records that no port has claimed yet.
    pub(super) unclaimed: BTreeSet<ServiceId>,
    pub(super) ids: IdAllocator,
    ports: HashMap<ObjectId, BTreeMap<PortId, Port>>,
    /// Last generation of each number, used or free: bounded by the capacity of SERVICES.
    generations: HashMap<ServiceId, u32>,
}

/// A service port: what is under one [`ServiceId`].
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Whether SERVICES has it.
    pub(super) in_map: bool,
    /// Its current slots.
    pub(super) slots: Vec<(SlotKey, BackendId)>,
    /// Whether the slots are complete and well formed, and so can be compared with a plan.
    pub(super) intact: bool,
    /// Frontends that name it.
    pub(super) frontends: BTreeSet<FrontendKey>,
}

#[derive(Debug, Default)]
struct Port {
    id: Option<ServiceId>,
    wanted: BTreeSet<FrontendKey>,
}

impl Written {
    pub(super) fn new() -> Self {
        Self {
            addresses: Addresses::default(),
            backends: Backends::new(),
            records: HashMap::new(),
            frontends: HashMap::new(),
            frontend_freed: false,
            wanted: HashMap::new(),
            misplaced: BTreeSet::new(),
            leaving_slots: BTreeMap::new(),
            retired: BTreeSet::new(),
            unclaimed: BTreeSet::new(),
            ids: IdAllocator::new(capacity::SERVICES - 1),
            ports: HashMap::new(),
            generations: HashMap::new(),
        }
    }

    /// How many entries wait for a barrier, about.
    pub(super) fn leaving(&self) -> usize {
        self.leaving_slots.len() + self.retired.len()
    }

    /// The number of a service port that is written.
    pub(super) fn id(&self, at: PortRef) -> Option<ServiceId> {
        self.ports.get(&at.service)?.get(&at.port)?.id
    }

    /// An adopted service port that one of these frontends names.
    pub(super) fn adoptable(&self, wanted: &BTreeSet<FrontendKey>) -> Option<ServiceId> {
        let named = wanted.iter().filter_map(|key| self.frontends.get(key));
        let mut ids = named.flat_map(services_of);
        ids.find(|id| self.unclaimed.contains(id) && self.records[id].in_map)
    }

    /// Whether all frontends that name it are among these.
    pub(super) fn serves_only(&self, id: ServiceId, wanted: &BTreeSet<FrontendKey>) -> bool {
        self.records
            .get(&id)
            .is_some_and(|record| record.frontends.is_subset(wanted))
    }

    /// Whether its slots are exactly these.
    pub(super) fn holds(&self, id: ServiceId, slots: &[Backend]) -> bool {
        let Some(record) = self.records.get(&id).filter(|record| record.intact) else {
            return false;
        };
        let held = record.slots.iter().map(|(_, backend)| Some(*backend));
        held.eq(slots.iter().map(|backend| self.backends.id(backend)))
    }

    /// Notes which frontends a service port should have.
    pub(super) fn want(&mut self, at: PortRef, wanted: &BTreeSet<FrontendKey>) {
        let port = self
            .ports
            .entry(at.service)
            .or_default()
            .entry(at.port)
            .or_default();
        let before = std::mem::replace(&mut port.wanted, wanted.clone());
        for key in before.difference(wanted) {
            self.unwant(*key, at);
        }
        for &key in wanted {
            self.wanted.insert(key, at);
        }
    }

    fn unwant(&mut self, key: FrontendKey, by: PortRef) {
        // Another service port may have claimed it in the meantime.
        if self.wanted.get(&key) == Some(&by) {
            self.wanted.remove(&key);
        }
        self.misplaced.insert(key);
    }

    /// Gives a service port its number; the one that it had before, if another, is retired.
    pub(super) fn assign(&mut self, at: PortRef, id: ServiceId) {
        self.unclaimed.remove(&id);
        let port = self
            .ports
            .entry(at.service)
            .or_default()
            .entry(at.port)
            .or_default();
        if let Some(before) = port.id.replace(id).filter(|&before| before != id) {
            self.retire(before);
        }
    }

    /// Takes the number of a service port away.
    pub(super) fn unassign(&mut self, at: PortRef) {
        let port = self
            .ports
            .get_mut(&at.service)
            .and_then(|ports| ports.get_mut(&at.port));
        if let Some(id) = port.and_then(|port| port.id.take()) {
            self.retire(id);
        }
    }

    /// Drops the ports of a Service that its plan doesn't have.
    pub(super) fn drop_ports(&mut self, service: ObjectId, plan: &BTreeMap<PortId, PortPlan>) {
        let ports = self.ports.get(&service).into_iter().flatten();
        let gone: Vec<_> = ports
            .map(|(&port, _)| port)
            .filter(|port| !plan.contains_key(port))
            .collect();
        for port in gone {
            let at = PortRef { service, port };
            self.want(at, &BTreeSet::new());
            self.unassign(at);
            if let Some(ports) = self.ports.get_mut(&service) {
                ports.remove(&port);
            }
        }
        if self.ports.get(&service).is_some_and(BTreeMap::is_empty) {
            self.ports.remove(&service);
        }
    }

    /// A record that belongs to no port any more.
    pub(super) fn retire(&mut self, id: ServiceId) {
        self.retired.insert(id);
        if let Some(record) = self.records.get(&id) {
            self.misplaced.extend(&record.frontends);
        }
    }

    /// Adopted records that no port has claimed are nobody's, and frontends that no port wants.
    pub(super) fn retire_unclaimed(&mut self) {
        for id in std::mem::take(&mut self.unclaimed) {
            self.retire(id);
        }
    }

    /// The next generation of a number: never 0, never one whose slots are still there.
    pub(super) fn next_generation(&mut self, id: ServiceId) -> u32 {
        let mut generation = self.generations.get(&id).copied().unwrap_or(0);
        loop {
            generation = generation.wrapping_add(1);
            if generation != 0 && !self.has_leaving_slots(id, generation, generation) {
                self.generations.insert(id, generation);
                return generation;
            }
        }
    }

    /// The generation that an adopted number has come to.
    pub(super) fn adopt_generation(&mut self, id: ServiceId, generation: u32) {
        self.generations.insert(id, generation);
    }

    /// Whether slots of a number are still to be deleted.
    pub(super) fn has_leaving_slots(&self, service: ServiceId, from: u32, to: u32) -> bool {
        let first = SlotKey {
            service,
            generation: from,
            index: 0,
        };
        let last = SlotKey {
            service,
            generation: to,
            index: u32::MAX,
        };
        self.leaving_slots.range(first..=last).next().is_some()
    }

    /// A frontend has been put.
    pub(super) fn placed(&mut self, key: FrontendKey, value: Frontend) {
        self.removed(key);
        self.frontends.insert(key, value);
        self.addresses.occupied(key.address);
        for id in services_of(&value) {
            if let Some(record) = self.records.get_mut(&id) {
                record.frontends.insert(key);
            }
        }
    }

    /// A frontend has been deleted, or replaced.
    pub(super) fn removed(&mut self, key: FrontendKey) {
        let Some(before) = self.frontends.remove(&key) else {
            return;
        };
        self.frontend_freed = true;
        self.addresses.vacated(key.address);
        for id in services_of(&before) {
            if let Some(record) = self.records.get_mut(&id) {
                record.frontends.remove(&key);
            }
        }
    }
}

/// The service ports that a frontend names.
pub(super) fn services_of(frontend: &Frontend) -> BTreeSet<ServiceId> {
    let mut ids = BTreeSet::from([frontend.internal, frontend.external]);
    ids.remove(&0);
    ids
}
