//! What is in the maps, by number, and whom it is for.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{BackendId, Frontend, FrontendKey, ServiceId, SlotKey, SourceKey, capacity};

use super::{
    addresses::Addresses,
    backends::Backends,
    record::{Record, members, services_of},
};
use crate::{
    hash::HashMap,
    ids::IdAllocator,
    names::ObjectId,
    plan::{FrontendPlan, PortId, PortName, PortPlan, Set},
    resolve::source_of,
    transport::Backend,
};

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PortRef {
    pub(super) service: ObjectId,
    pub(super) port: PortId,
}

/// The frontends of a service port, and what each should be.
pub(super) type Wanted = BTreeMap<FrontendKey, FrontendPlan>;

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
    /// The same of KEPT.
    pub(super) kept_freed: bool,
    /// FRONTENDS, as it should be.
    pub(super) wanted: HashMap<FrontendKey, PortRef>,
    /// Frontends that may be somewhere where they should not be.
    pub(super) misplaced: BTreeSet<FrontendKey>,
    /// How many entries SLOTS has.
    pub(super) slots: usize,
    /// Entries of SLOTS that are no longer, or not yet, or never were current.
    pub(super) leaving_slots: BTreeMap<SlotKey, BackendId>,
    /// Entries of SOURCES that say who is of the cluster.
    pub(super) clients: BTreeSet<SourceKey>,
    /// Entries of SOURCES that no frontend asks for any more, or of who is not of the cluster any more.
    pub(super) leaving_sources: BTreeSet<SourceKey>,
    /// Numbers that a frontend has left since their service ports were written: their ranges and members may be asked
    /// for by none. A port is written before another one takes its frontend, and long before if that fails at first.
    pub(super) unasked: BTreeSet<ServiceId>,
    /// Records without a port, to be removed.
    pub(super) retired: BTreeSet<ServiceId>,
    /// Adopted records that no port has claimed yet.
    pub(super) unclaimed: BTreeSet<ServiceId>,
    /// Of these, those that are some set's, and no other's.
    reserved: BTreeMap<ServiceId, (PortRef, Set)>,
    pub(super) ids: IdAllocator,
    ports: BTreeMap<PortRef, Port>,
    /// Last generation of each number, used or free: bounded by the capacity of SERVICES.
    generations: HashMap<ServiceId, u32>,
}

/// A service port.
#[derive(Debug, Default)]
pub(super) struct Port {
    /// The numbers of its sets.
    pub(super) ids: [Option<ServiceId>; 2],
    /// The frontends that it should have, in order.
    pub(super) wanted: Box<[FrontendKey]>,
    /// To whom its established flows may keep.
    pub(super) serving: Box<[BackendId]>,
}

impl Port {
    /// The numbers that it has.
    pub(super) fn ids(&self) -> impl Iterator<Item = ServiceId> {
        self.ids.into_iter().flatten()
    }
}

/// The place of a set in [`Port::ids`].
pub(super) const fn place(set: Set) -> usize {
    match set {
        Set::Cluster => 0,
        Set::Local => 1,
    }
}

impl Written {
    pub(super) fn new() -> Self {
        Self {
            addresses: Addresses::default(),
            backends: Backends::new(),
            records: HashMap::default(),
            frontends: HashMap::default(),
            frontend_freed: false,
            kept_freed: false,
            wanted: HashMap::default(),
            misplaced: BTreeSet::new(),
            slots: 0,
            leaving_slots: BTreeMap::new(),
            clients: BTreeSet::new(),
            leaving_sources: BTreeSet::new(),
            unasked: BTreeSet::new(),
            retired: BTreeSet::new(),
            unclaimed: BTreeSet::new(),
            reserved: BTreeMap::new(),
            ids: IdAllocator::new(capacity::SERVICES - 1),
            ports: BTreeMap::new(),
            generations: HashMap::default(),
        }
    }

    /// How many entries wait for a barrier, about.
    pub(super) fn leaving(&self) -> usize {
        self.leaving_slots.len()
            + self.leaving_sources.len()
            + self.retired.len()
            + self.backends.idle().len()
    }

    /// A service port.
    pub(super) fn port(&self, at: &PortRef) -> Option<&Port> {
        self.ports.get(at)
    }

    /// A service port, which is one from now on.
    pub(super) fn port_mut(&mut self, at: &PortRef) -> &mut Port {
        self.ports.entry(at.clone()).or_default()
    }

    /// The number of a set that is written.
    pub(super) fn id(&self, at: &PortRef, set: Set) -> Option<ServiceId> {
        self.ports.get(at)?.ids[place(set)]
    }

    /// An adopted number that one of these frontends names where it should name this set: that which is reserved for
    /// it, or one that is reserved for none.
    pub(super) fn adoptable(&self, at: &PortRef, wanted: &Wanted, set: Set) -> Option<ServiceId> {
        let mut unreserved = None;
        for id in self.adopted(wanted, set) {
            match self.reserved.get(&id) {
                Some((whose, its)) if (whose, *its) == (at, set) => return Some(id),
                Some(_) => {}
                None => _ = unreserved.get_or_insert(id),
            }
        }
        unreserved
    }

    /// Reserves the adopted number that a service port's own frontend names for a set: one of its other frontends may
    /// have become another Service's meanwhile, which must not take the number for that.
    pub(super) fn reserve(&mut self, at: &PortRef, set: Set, plan: &PortPlan) {
        let own = plan.frontends.iter().filter(|(_, frontend)| frontend.own);
        let own = own
            .map(|(address, frontend)| (address.frontend_key(), *frontend))
            .collect();
        let id = self.adopted(&own, set).next();
        if let Some(id) = id {
            self.reserved.entry(id).or_insert_with(|| (at.clone(), set));
        }
    }

    fn adopted(&self, wanted: &Wanted, set: Set) -> impl Iterator<Item = ServiceId> {
        let named = wanted.iter().filter_map(move |(key, plan)| {
            let found = self.frontends.get(key)?;
            let internal = (plan.internal == set).then_some(found.internal);
            let external = (plan.external == set).then_some(found.external);
            Some([internal, external])
        });
        let ids = named.flatten().flatten();
        ids.filter(|id| self.unclaimed.contains(id) && self.records[id].in_map)
    }

    /// Whether every frontend that names a number is one of these, and names it where it should name this set: one
    /// store then switches all of them, and nobody else.
    pub(super) fn serves_only(&self, id: ServiceId, wanted: &Wanted, set: Set) -> bool {
        let mut named = 0;
        for (key, plan) in wanted {
            let Some(found) = self.frontends.get(key) else {
                continue;
            };
            let [internal, external] = [found.internal == id, found.external == id];
            if (internal && plan.internal != set) || (external && plan.external != set) {
                return false;
            }
            named += u32::from(internal || external);
        }
        self.records
            .get(&id)
            .is_some_and(|record| record.frontends == named)
    }

    /// Whether its slots are exactly these, and noted as members where they have to be.
    pub(super) fn holds(&self, id: ServiceId, slots: &[Backend], members: bool) -> bool {
        let Some(record) = self.records.get(&id).filter(|record| record.intact) else {
            return false;
        };
        record.slots.len() == slots.len()
            && (record.members || !members || slots.is_empty())
            && record
                .slots
                .iter()
                .zip(slots)
                .all(|(&held, backend)| self.backends.id(backend) == Some(held))
    }

    /// Notes which frontends a service port should have.
    pub(super) fn want(&mut self, at: &PortRef, wanted: &Wanted) {
        let before = self.ports.get(at).map_or(&[][..], |port| &port.wanted);
        if before.iter().eq(wanted.keys()) && before.iter().all(|key| self.wanted.get(key) == Some(at)) {
            return;
        }
        let now = wanted.keys().copied().collect();
        let before = std::mem::replace(&mut self.port_mut(at).wanted, now);
        for key in before {
            if !wanted.contains_key(&key) {
                self.unwant(key, at);
            }
        }
        for &key in wanted.keys() {
            self.wanted.insert(key, at.clone());
        }
    }

    fn unwant(&mut self, key: FrontendKey, by: &PortRef) {
        // Another service port may have claimed it in the meantime.
        if self.wanted.get(&key) == Some(by) {
            self.wanted.remove(&key);
            self.misplaced.insert(key);
        }
    }

    /// Gives a set its number; the one that it had before, if another, is retired.
    pub(super) fn assign(&mut self, at: &PortRef, set: Set, id: ServiceId) {
        self.unclaimed.remove(&id);
        let before = self.port_mut(at).ids[place(set)].replace(id);
        if let Some(before) = before.filter(|&before| before != id) {
            self.retired.insert(before);
        }
    }

    /// Takes the number of a set away.
    pub(super) fn unassign(&mut self, at: &PortRef, set: Set) {
        let port = self.ports.get_mut(at);
        if let Some(id) = port.and_then(|port| port.ids[place(set)].take()) {
            self.retired.insert(id);
        }
    }

    /// Takes the ports of a Service out that its plan doesn't have: their frontends are nobody's, their numbers
    /// retired.
    pub(super) fn drop_ports(&mut self, service: ObjectId, plan: &BTreeMap<PortId, PortPlan>) -> Vec<Port> {
        let from = self.ports.range(PortRef::first(service)..);
        let of = from.take_while(|(at, _)| at.service == service);
        let gone: Vec<PortRef> = of
            .map(|(at, _)| at)
            .filter(|at| !plan.contains_key(&at.port))
            .cloned()
            .collect();
        let mut taken = Vec::with_capacity(gone.len());
        for at in gone {
            let Some(port) = self.ports.remove(&at) else {
                continue;
            };
            self.retired.extend(port.ids());
            for &key in &port.wanted {
                self.unwant(key, &at);
            }
            taken.push(port);
        }
        taken
    }

    /// Adopted records that no port has claimed are nobody's.
    pub(super) fn retire_unclaimed(&mut self) {
        self.retired.append(&mut self.unclaimed);
        self.reserved.clear();
    }

    /// The next generation of a number: never 0, never one whose slots are still there.
    pub(super) fn next_generation(&mut self, id: ServiceId) -> u32 {
        let mut generation = self.generations.get(&id).copied().unwrap_or(0);
        let kept = self.records.get(&id).and_then(|record| record.kept.as_ref());
        let kept = kept.map(|kept| kept.generation);
        loop {
            generation = generation.wrapping_add(1);
            let free = generation != 0
                && kept != Some(generation)
                && !self.has_leaving_slots(id, generation, generation);
            if free {
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
        self.name(&value, |count| *count += 1);
    }

    /// A frontend has been deleted, or replaced.
    pub(super) fn removed(&mut self, key: FrontendKey) {
        let Some(before) = self.frontends.remove(&key) else {
            return;
        };
        self.frontend_freed = true;
        self.addresses.vacated(key.address);
        self.name(&before, |count| *count -= 1);
        self.unasked.extend(services_of(&before));
    }

    /// Ranges and members that no frontend asks for leave.
    pub(super) fn release_unasked(&mut self) {
        for id in std::mem::take(&mut self.unasked) {
            let Some(record) = self.records.get_mut(&id) else {
                continue;
            };
            if record.ranged == 0 {
                self.leaving_sources.extend(&record.sources);
            }
            if record.affine == 0 && record.members {
                record.members = false;
                let members = members(id, record.generation, &record.slots);
                self.leaving_slots.extend(members);
            }
        }
    }

    fn name(&mut self, frontend: &Frontend, change: impl Fn(&mut u32)) {
        for id in services_of(frontend) {
            if let Some(record) = self.records.get_mut(&id) {
                change(&mut record.frontends);
                if frontend.affinity_seconds != 0 {
                    change(&mut record.affine);
                }
                if source_of(*frontend) == Some(id) {
                    change(&mut record.ranged);
                }
            }
        }
    }
}

impl PortRef {
    /// Before all ports of a Service.
    fn first(service: ObjectId) -> Self {
        let port = PortId {
            name: PortName::Of("".into()),
            protocol: crate::transport::Protocol::Tcp,
            family: crate::transport::Family::V4,
        };
        Self { service, port }
    }
}
