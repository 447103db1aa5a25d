//! The shadow of the maps: the entries that the agent has written, and the only way to write them.
//!
//! Every operation writes a map and notes what succeeded. So the shadow and the maps differ only by writes of other
//! programs, which the audit finds.
//!
//! # Invariants
//! - A hash map gives the memory of a replaced or deleted entry to the next put at once, where a program that found
//!   the old entry would read the new one. So after an entry of BACKENDS, KEPT, ADDRESSES or FRONTENDS was replaced
//!   or deleted while programs could find it, nothing is put in that map before a barrier.
//! - Every entry of SLOTS belongs to the record of its number, or is to be deleted. `slots` counts them all, and each
//!   backend the entries that carry it.
//! - A record counts the entries of FRONTENDS that name its number, and an address those that it has.
//! - A generation is given to a number only while no slot of an earlier use of it is left.
//! - A number has a record from its allocation until no entry carries it any more. Meanwhile it is a service port's,
//!   adopted and unclaimed, or retired.
//! - The `delete_` operations of slots, services, sources and backends come after a barrier that is later than
//!   whatever led there: see `garbage.rs`.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{
    Address, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey, address_flags,
    capacity,
};

use super::{
    addresses::Addresses,
    backends::Backends,
    service_entries::{Kept, Record, Slots, count, entries, members, services_of},
};
use crate::{
    endpoint_address::Backend,
    hash::{HashMap, HashSet},
    ids::IdAllocator,
    maps::{Contents, LbMaps, Map, MapError, Partial, SOURCE},
    names::ObjectId,
    resolve::source_of,
};

/// What is in the maps.
#[derive(Debug)]
pub(super) struct Shadow<M> {
    maps: M,
    /// How many entries were put or deleted; failures included.
    writes: u64,
    /// Maps, in the order of [`Map::ALL`], of which memory was freed since the last barrier.
    freed: [bool; Map::ALL.len()],
    addresses: Addresses,
    backends: Backends,
    records: HashMap<ServiceId, Record>,
    frontends: HashMap<FrontendKey, Frontend>,
    /// Numbers that a frontend with affinity has left since the last barrier: a program that found it may still ask for members.
    affine_before: HashSet<ServiceId>,
    /// How many entries SLOTS has.
    slots: usize,
    /// Entries of SLOTS that are not current, and not about to be.
    slots_to_delete: BTreeMap<SlotKey, BackendId>,
    /// Entries of SOURCES with the ranges of the cluster's clients.
    clients: BTreeSet<SourceKey>,
    /// Entries of SOURCES that are not used any more.
    sources_to_delete: BTreeSet<SourceKey>,
    /// Numbers that a frontend has left since their service ports were written. Maybe no frontend uses their ranges and
    /// members any more.
    unreferenced: BTreeSet<ServiceId>,
    /// Numbers without a service port, to be removed.
    retired: BTreeSet<ServiceId>,
    /// Adopted numbers that no service port has claimed yet.
    unclaimed: BTreeSet<ServiceId>,
    ids: IdAllocator,
    /// Last generation of each number, used or free: bounded by the capacity of SERVICES.
    generations: HashMap<ServiceId, u32>,
}

/// A generation of slots that is not current yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged {
    generation: u32,
    /// Whether each backend is noted as a member.
    members: bool,
}

/// The maps as a whole.
impl<M: LbMaps> Shadow<M> {
    /// Of empty maps; `adopt.rs` adds what is in them.
    pub(super) fn new(maps: M) -> Self {
        Self {
            maps,
            writes: 0,
            freed: Default::default(),
            addresses: Addresses::default(),
            backends: Backends::new(),
            records: HashMap::default(),
            frontends: HashMap::default(),
            affine_before: HashSet::default(),
            slots: 0,
            slots_to_delete: BTreeMap::new(),
            clients: BTreeSet::new(),
            sources_to_delete: BTreeSet::new(),
            unreferenced: BTreeSet::new(),
            retired: BTreeSet::new(),
            unclaimed: BTreeSet::new(),
            ids: IdAllocator::new(capacity::SERVICES - 1),
            generations: HashMap::default(),
        }
    }

    /// The maps.
    pub(super) const fn maps(&self) -> &M {
        &self.maps
    }

    /// The maps, to be disturbed by a test.
    pub(super) const fn maps_mut(&mut self) -> &mut M {
        &mut self.maps
    }

    /// Returns the maps.
    pub(super) fn into_maps(self) -> M {
        self.maps
    }

    /// How many entries were put or deleted; failures included.
    pub(super) const fn writes(&self) -> u64 {
        self.writes
    }

    /// Waits until every running program has ended: memory that was freed before may be used again.
    pub(super) fn barrier(&mut self) -> Result<(), MapError> {
        self.maps.barrier()?;
        self.freed = Default::default();
        self.affine_before.clear();
        Ok(())
    }

    /// Makes sure that a put in a hash map reuses no memory that a running program reads.
    fn before_put(&mut self, map: Map) -> Result<(), MapError> {
        if self.freed[map as usize] {
            self.barrier()?;
        }
        Ok(())
    }

    /// How many entries each map has, in the order of [`Map::ALL`].
    pub(super) fn entries(&self) -> [usize; Map::ALL.len()] {
        let records = self.records.values();
        let count = |which: fn(&Record) -> usize| records.clone().map(which).sum::<usize>();
        Map::ALL.map(|map| match map {
            Map::Backends => self.backends.len(),
            Map::Slots => self.slots,
            Map::Services => count(|record| usize::from(record.is_in_map())),
            Map::Kept => count(|record| usize::from(record.is_in_kept())),
            Map::Sources => count(|record| record.sources().len()) + self.clients.len(),
            Map::Addresses => self.addresses.written().len(),
            Map::Frontends => self.frontends.len(),
        })
    }

    /// How many entries wait for a barrier, about.
    pub(super) fn to_delete(&self) -> usize {
        self.slots_to_delete.len()
            + self.sources_to_delete.len()
            + self.retired.len()
            + self.backends.idle().len()
    }

    /// Whether [`collect`](super::collect) would do anything.
    pub(super) fn has_to_delete(&self) -> bool {
        !self.slots_to_delete.is_empty()
            || !self.sources_to_delete.is_empty()
            || !self.unreferenced.is_empty()
            || !self.backends.idle().is_empty()
            || self.retired.iter().any(|&id| self.is_unnamed(id))
    }
}

/// Entries of adopted maps.
impl<M: LbMaps> Shadow<M> {
    pub(super) fn adopt_backend(&mut self, id: BackendId, backend: Option<Backend>) {
        self.backends.adopt(id, backend);
    }

    /// A slot of a backend that is not in the map still carries its number.
    pub(super) fn adopt_slot(&mut self, backend: BackendId) {
        self.slots += 1;
        self.backends.adopt(backend, None);
        self.backends.carried(backend);
    }

    /// `others`: slots that the record doesn't have.
    pub(super) fn adopt_number(
        &mut self,
        id: ServiceId,
        record: Record,
        others: BTreeMap<SlotKey, BackendId>,
    ) {
        if self.ids.contains(id) {
            self.ids.reserve(id);
        }
        self.generations.insert(id, record.value().generation);
        // `append` would go through all of them for each number.
        self.slots_to_delete.extend(others);
        self.records.insert(id, record);
        self.unclaimed.insert(id);
    }

    /// `of`: the number of a well-formed entry.
    pub(super) fn adopt_source(&mut self, key: SourceKey, of: Option<ServiceId>) {
        if of == Some(SourceKey::CLUSTER) {
            self.clients.insert(key);
        } else if let Some(record) = of.and_then(|id| self.records.get_mut(&id)) {
            record.source_put(key);
        } else {
            self.sources_to_delete.insert(key);
        }
    }

    pub(super) fn adopt_address(&mut self, address: Address, flags: u32) {
        self.addresses.adopt(address, flags);
    }

    pub(super) fn adopt_frontend(&mut self, key: FrontendKey, value: Frontend) {
        self.note_frontend(key, value);
    }
}

/// ADDRESSES.
impl<M: LbMaps> Shadow<M> {
    /// Notes which addresses a Service, or the node, wants.
    pub(super) fn want_addresses(&mut self, service: ObjectId, plan: &[(Address, u32)]) {
        self.addresses.want(service, plan);
    }

    /// Whether the map has an address.
    pub(super) fn has_address(&self, address: Address) -> bool {
        self.addresses.written().contains_key(&address)
    }

    /// Whether frontends may be put at an address.
    pub(super) fn may_have_frontends(&self, address: Address) -> bool {
        self.addresses.may_have_frontends(address)
    }

    /// Whether node ports answer at an address.
    pub(super) fn is_node_address(&self, address: Address) -> bool {
        let flags = self.addresses.written().get(&address);
        flags.is_some_and(|flags| flags & address_flags::NODE != 0)
    }

    /// The flags that an address should have and lacks, with those that it has; `None`: it lacks none.
    pub(super) fn missing_flags(&self, address: Address) -> Option<u32> {
        self.addresses.missing(address)
    }

    pub(super) fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        self.before_put(Map::Addresses)?;
        self.writes += 1;
        self.maps.put_address(address, flags)?;
        self.note_address(address, flags);
        Ok(())
    }

    /// Puts addresses until one fails.
    pub(super) fn put_addresses(&mut self, new: &[(Address, u32)]) {
        if new.is_empty() || self.before_put(Map::Addresses).is_err() {
            return;
        }
        self.writes += new.len() as u64;
        let result = self.maps.put_addresses(new);
        for &(address, flags) in &new[..done(&result, new.len())] {
            self.note_address(address, flags);
        }
    }

    fn note_address(&mut self, address: Address, flags: u32) {
        self.freed[Map::Addresses as usize] |= self.addresses.put(address, flags);
    }

    /// Deletes addresses that have no frontend any more, and takes flags away that are not wanted any more.
    pub(super) fn remove_excess_addresses(&mut self) -> Vec<MapError> {
        let mut errors = Vec::new();
        for (address, wanted) in self.addresses.excess() {
            let result = match wanted {
                Some(flags) => self.put_address(address, flags),
                None => self.delete_address(address),
            };
            errors.extend(result.err());
        }
        errors
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        self.writes += 1;
        self.maps.delete_address(address)?;
        self.freed[Map::Addresses as usize] |= self.addresses.deleted(address);
        Ok(())
    }
}

/// BACKENDS.
impl<M: LbMaps> Shadow<M> {
    /// The number of a backend in the map.
    pub(super) fn backend_id(&self, backend: &Backend) -> Option<BackendId> {
        self.backends.id(backend)
    }

    /// The backend of a number that was written by an agent of this version.
    pub(super) fn backend(&self, id: BackendId) -> Option<Backend> {
        self.backends.get(id)
    }

    /// One more service port holds a backend.
    pub(super) fn hold_backend(&mut self, id: BackendId) {
        self.backends.held(id);
    }

    /// One service port less holds it.
    pub(super) fn drop_backend(&mut self, id: BackendId) {
        self.backends.dropped(id);
    }

    /// Every plan has been seen: adopted backends are kept for service ports alone. The result: see
    /// [`Backends::release_adopted`].
    pub(super) fn release_adopted_backends(&mut self) -> Vec<(BackendId, Backend)> {
        self.backends.release_adopted()
    }

    /// Puts those of these backends that are not in the map.
    pub(super) fn put_backends(
        &mut self,
        backends: impl IntoIterator<Item = Backend>,
    ) -> Result<(), MapError> {
        let backends = backends.into_iter();
        let new: BTreeSet<Backend> = backends.filter(|one| self.backend_id(one).is_none()).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.before_put(Map::Backends)?;
        let mut entries = Vec::with_capacity(new.len());
        for &backend in &new {
            let Some(id) = self.backends.allocate() else {
                break;
            };
            entries.push((id, backend));
        }
        let values: Vec<_> = entries
            .iter()
            .map(|&(id, backend)| (id, backend.value()))
            .collect();
        self.writes += values.len() as u64;
        let result = self.maps.put_backends(&values);
        let done = done(&result, values.len());
        for (index, (id, backend)) in entries.into_iter().enumerate() {
            if index < done {
                self.backends.put(id, backend);
            } else {
                self.backends.free(id);
            }
        }
        result.map_err(|partial| partial.error)?;
        if done < new.len() {
            return Err(MapError::Full {
                map: "BACKENDS",
                capacity: capacity::BACKENDS,
            });
        }
        Ok(())
    }

    /// Deletes backends that no slot carries and no service port holds.
    pub(super) fn delete_idle_backends(&mut self, errors: &mut Vec<MapError>) {
        let ids: Vec<BackendId> = self.backends.idle().iter().copied().collect();
        self.writes += ids.len() as u64;
        let maps = &mut self.maps;
        for id in all_but_failed(&ids, errors, |ids| maps.delete_backends(ids)) {
            self.backends.deleted(id);
        }
    }
}

/// Numbers of sets of backends.
impl<M: LbMaps> Shadow<M> {
    /// What is under a number.
    pub(super) fn record(&self, id: ServiceId) -> Option<&Record> {
        self.records.get(&id)
    }

    /// Whether its slots are exactly these, and noted as members where they have to be.
    pub(super) fn holds(&self, id: ServiceId, slots: &[Backend], members: bool) -> bool {
        let ids = slots.iter().map(|backend| self.backend_id(backend));
        self.record(id).is_some_and(|record| record.holds(ids, members))
    }

    /// A number that nothing carries.
    pub(super) fn allocate(&mut self) -> Result<ServiceId, MapError> {
        let full = MapError::Full {
            map: "SERVICES",
            capacity: capacity::SERVICES,
        };
        let id = self.ids.allocate().ok_or(full)?;
        self.records.insert(id, Record::default());
        Ok(id)
    }

    /// Whether there are adopted numbers that no service port has claimed.
    pub(super) fn has_unclaimed(&self) -> bool {
        !self.unclaimed.is_empty()
    }

    /// Whether a service port may claim a number: it is adopted, and SERVICES has it.
    pub(super) fn is_claimable(&self, id: ServiceId) -> bool {
        self.unclaimed.contains(&id) && self.record(id).is_some_and(Record::is_in_map)
    }

    /// A number has become a service port's.
    pub(super) fn claim(&mut self, id: ServiceId) {
        self.unclaimed.remove(&id);
    }

    /// A number is no service port's any more: it is deleted when no frontend names it.
    pub(super) fn retire(&mut self, id: ServiceId) {
        self.retired.insert(id);
    }

    /// Adopted numbers that no service port has claimed are retired.
    pub(super) fn retire_unclaimed(&mut self) {
        self.retired.append(&mut self.unclaimed);
    }

    /// Retired numbers that no frontend names.
    pub(super) fn removable(&self) -> Vec<ServiceId> {
        let retired = self.retired.iter().copied();
        retired.filter(|&id| self.is_unnamed(id)).collect()
    }

    fn is_unnamed(&self, id: ServiceId) -> bool {
        self.record(id).is_some_and(|record| record.frontends() == 0)
    }

    /// Marks all slots and ranges of a removable number for deletion.
    pub(super) fn empty_number(&mut self, id: ServiceId) {
        if let Some(record) = self.records.get_mut(&id) {
            self.slots_to_delete.extend(record.take_current(id));
            self.sources_to_delete.extend(record.sources());
        }
    }

    /// Deletes the entry of SERVICES of a removable number.
    pub(super) fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        let Some(record) = self.records.get_mut(&id).filter(|record| record.is_in_map()) else {
            return Ok(());
        };
        self.writes += 1;
        self.maps.delete_service(id)?;
        record.deleted();
        Ok(())
    }

    /// Frees a removable number, if no entry carries it any more.
    pub(super) fn free_number(&mut self, id: ServiceId) {
        let record = self.record(id);
        let is_empty = record.is_some_and(|record| !record.is_in_map() && record.sources().is_empty());
        if is_empty && !self.has_slots_to_delete(id, 0, u32::MAX) {
            self.records.remove(&id);
            self.retired.remove(&id);
            if self.ids.contains(id) {
                self.ids.free(id);
            }
        }
    }
}

/// SLOTS and SERVICES.
impl<M: LbMaps> Shadow<M> {
    /// Adds the slots of a number's next generation to those that are about to be put.
    pub(super) fn next_slots(
        &mut self,
        id: ServiceId,
        backends: &[BackendId],
        with_members: bool,
        new: &mut Slots,
    ) -> Staged {
        let generation = self.next_generation(id);
        new.extend(entries(id, generation, backends));
        if with_members {
            new.extend(members(id, generation, backends));
        }
        Staged {
            generation,
            members: with_members,
        }
    }

    /// Puts entries of SLOTS that nothing leads to: all of them, or none.
    pub(super) fn put_slots(&mut self, new: &[(SlotKey, BackendId)]) -> Result<(), MapError> {
        self.writes += new.len() as u64;
        let result = self.maps.put_slots(new);
        let done = done(&result, new.len());
        self.slots += done;
        for (_, backend) in &new[..done] {
            self.backends.carried(*backend);
        }
        result.map_err(|Partial { error, .. }| {
            self.delete_uncommitted(&new[..done]);
            error
        })
    }

    /// Switches a number to a generation whose slots, `new`, are in the map: one store. The slots of the one before
    /// leave, unless they are kept.
    pub(super) fn switch(
        &mut self,
        id: ServiceId,
        staged: Staged,
        backends: Box<[BackendId]>,
        new: &[(SlotKey, BackendId)],
    ) -> Result<(), MapError> {
        let Staged { generation, members } = staged;
        let value = Service {
            generation,
            slots: count(&backends),
        };
        self.writes += 1;
        if let Err(error) = self.maps.put_service(id, value) {
            self.delete_uncommitted(new);
            return Err(error);
        }
        if let Some(record) = self.records.get_mut(&id) {
            let leaving = record.switched(id, generation, backends, members);
            self.slots_to_delete.extend(leaving);
        }
        Ok(())
    }

    /// Deletes slots that never were current, so that no program can have found them: at once, because others may
    /// fit where these did not.
    fn delete_uncommitted(&mut self, slots: &[(SlotKey, BackendId)]) {
        let keys: Vec<SlotKey> = slots.iter().map(|(key, _)| *key).collect();
        let result = self.maps.delete_slots(&keys);
        let done = done(&result, slots.len());
        self.slots -= done;
        for (_, backend) in &slots[..done] {
            self.backends.released(*backend);
        }
        // Collected with the others, and tried again there.
        self.slots_to_delete.extend(slots[done..].iter().copied());
    }

    /// The next generation of a number: never 0, never one whose slots are still there.
    fn next_generation(&mut self, id: ServiceId) -> u32 {
        let mut generation = self.generations.get(&id).copied().unwrap_or(0);
        let kept = self.record(id).and_then(Record::kept);
        let kept = kept.map(|kept| kept.value().generation);
        loop {
            generation = generation.wrapping_add(1);
            let free = generation != 0
                && kept != Some(generation)
                && !self.has_slots_to_delete(id, generation, generation);
            if free {
                self.generations.insert(id, generation);
                return generation;
            }
        }
    }

    /// Whether slots of a number are still to be deleted.
    fn has_slots_to_delete(&self, service: ServiceId, from: u32, to: u32) -> bool {
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
        self.slots_to_delete.range(first..=last).next().is_some()
    }

    /// Whether a program may ask for the members of a number: by a frontend with affinity, or by one that it found before the last
    /// barrier.
    pub(super) fn is_asked_for_members(&self, id: ServiceId) -> bool {
        self.affine_before.contains(&id) || self.record(id).is_some_and(Record::is_affine)
    }

    /// Marks the members of a number, which no frontend reads, for deletion.
    pub(super) fn drop_members(&mut self, id: ServiceId) {
        if let Some(record) = self.records.get_mut(&id) {
            self.slots_to_delete.extend(record.take_members(id));
        }
    }

    /// Deletes the slots that are to be deleted.
    pub(super) fn delete_slots(&mut self, errors: &mut Vec<MapError>) {
        let keys: Vec<SlotKey> = self.slots_to_delete.keys().copied().collect();
        self.writes += keys.len() as u64;
        let maps = &mut self.maps;
        for key in all_but_failed(&keys, errors, |keys| maps.delete_slots(keys)) {
            if let Some(backend) = self.slots_to_delete.remove(&key) {
                self.slots -= 1;
                self.backends.released(backend);
            }
        }
    }
}

/// KEPT.
impl<M: LbMaps> Shadow<M> {
    /// Keeps the current slots of a number for the agent's own sockets, if they can use them. Where KEPT can't be
    /// written, they are kept all the same, and [`keep_again`](Self::keep_again) puts them there.
    pub(super) fn keep_current(&mut self, id: ServiceId) -> Result<(), MapError> {
        let Some(record) = self.record(id) else {
            return Ok(());
        };
        let Some(value) = record.usable_value() else {
            return Ok(());
        };
        let in_map = record.kept().filter(|kept| kept.is_in_map());
        let in_map = in_map.map(|kept| kept.value().generation);
        let result = if in_map == Some(value.generation) {
            Ok(())
        } else {
            self.put_kept(id, value)
        };
        let is_put = result.is_ok();
        // KEPT still has an older generation, whose slots must not go then.
        if in_map.is_some_and(|generation| generation != value.generation) {
            result?;
        }
        if let Some(record) = self.records.get_mut(&id) {
            self.slots_to_delete.extend(record.keep_current(id, is_put));
        }
        Ok(())
    }

    /// Puts what is kept of a number, if it is sound and KEPT lacks it; deletes what is not sound.
    pub(super) fn keep_again(&mut self, id: ServiceId) -> Result<(), MapError> {
        let Some(kept) = self.record(id).and_then(Record::kept) else {
            return Ok(());
        };
        if !kept.is_sound() {
            return self.unkeep(id);
        }
        if kept.is_in_map() {
            return Ok(());
        }
        let value = kept.value();
        self.put_kept(id, value)?;
        if let Some(record) = self.records.get_mut(&id) {
            record.kept_put();
        }
        Ok(())
    }

    /// Keeps nothing of a number any more.
    pub(super) fn unkeep(&mut self, id: ServiceId) -> Result<(), MapError> {
        let Some(record) = self.records.get_mut(&id) else {
            return Ok(());
        };
        if record.is_in_kept() {
            self.writes += 1;
            self.maps.delete_kept(id)?;
            self.freed[Map::Kept as usize] = true;
        }
        self.slots_to_delete.extend(record.take_kept(id));
        Ok(())
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.before_put(Map::Kept)?;
        self.writes += 1;
        self.maps.put_kept(id, value)?;
        let is_replaced = self.record(id).is_some_and(Record::is_in_kept);
        self.freed[Map::Kept as usize] |= is_replaced;
        Ok(())
    }
}

/// FRONTENDS.
impl<M: LbMaps> Shadow<M> {
    /// An entry of FRONTENDS.
    pub(super) fn frontend(&self, key: &FrontendKey) -> Option<&Frontend> {
        self.frontends.get(key)
    }

    /// Whether a frontend uses the ranges of clients of a number.
    pub(super) fn uses_ranges_of(&self, key: &FrontendKey, id: ServiceId) -> bool {
        let frontend = self.frontends.get(key);
        frontend.is_some_and(|frontend| source_of(*frontend) == Some(id))
    }

    pub(super) fn put_frontends(&mut self, entries: &[(FrontendKey, Frontend)]) -> Result<(), Partial> {
        let result = self.write_frontends(entries);
        for &(key, value) in &entries[..done(&result, entries.len())] {
            self.note_frontend(key, value);
        }
        result
    }

    pub(super) fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        self.writes += 1;
        self.maps.delete_frontend(key)?;
        self.forget_frontend(key);
        Ok(())
    }

    fn write_frontends(&mut self, entries: &[(FrontendKey, Frontend)]) -> Result<(), Partial> {
        self.before_put(Map::Frontends)
            .map_err(|error| Partial { done: 0, error })?;
        self.writes += entries.len() as u64;
        self.maps.put_frontends(entries)
    }

    fn note_frontend(&mut self, key: FrontendKey, value: Frontend) {
        self.forget_frontend(key);
        self.frontends.insert(key, value);
        self.addresses.occupied(key.address);
        for id in services_of(&value) {
            if let Some(record) = self.records.get_mut(&id) {
                record.named(id, &value);
            }
        }
    }

    fn forget_frontend(&mut self, key: FrontendKey) {
        let Some(before) = self.frontends.remove(&key) else {
            return;
        };
        self.freed[Map::Frontends as usize] = true;
        self.addresses.vacated(key.address);
        for id in services_of(&before) {
            if let Some(record) = self.records.get_mut(&id) {
                record.unnamed(id, &before);
            }
            if before.affinity_seconds != 0 {
                self.affine_before.insert(id);
            }
            self.unreferenced.insert(id);
        }
    }

    /// The set of a number has been written for a service port, which then drops unused ranges and members itself.
    pub(super) fn set_written(&mut self, id: ServiceId) {
        self.unreferenced.remove(&id);
    }

    /// Marks ranges and members that no frontend uses for deletion, of numbers that frontends have left.
    pub(super) fn release_unreferenced(&mut self) {
        for id in std::mem::take(&mut self.unreferenced) {
            let Some(record) = self.records.get_mut(&id) else {
                continue;
            };
            if !record.is_ranged() {
                self.sources_to_delete.extend(record.sources());
            }
            if !record.is_affine() {
                self.slots_to_delete.extend(record.take_members(id));
            }
        }
    }
}

/// SOURCES.
impl<M: LbMaps> Shadow<M> {
    /// Puts a range of clients of a number.
    pub(super) fn put_range(&mut self, id: ServiceId, key: SourceKey) -> Result<(), MapError> {
        self.sources_to_delete.remove(&key);
        if let Some(record) = self.records.get_mut(&id)
            && !record.sources().contains(&key)
        {
            self.writes += 1;
            self.maps.put_source(key)?;
            record.source_put(key);
        }
        Ok(())
    }

    /// Marks all other ranges of clients of a number for deletion.
    pub(super) fn drop_ranges_but(&mut self, id: ServiceId, wanted: &BTreeSet<SourceKey>) {
        if let Some(record) = self.records.get(&id) {
            self.sources_to_delete.extend(record.sources().difference(wanted));
        }
    }

    /// Puts the ranges of the cluster's clients, until one fails, and marks others for deletion.
    pub(super) fn put_clients(&mut self, wanted: BTreeSet<SourceKey>) -> Result<(), MapError> {
        self.sources_to_delete.extend(self.clients.difference(&wanted));
        // All of them, before the first that does not fit.
        for key in &wanted {
            self.sources_to_delete.remove(key);
        }
        for key in wanted {
            if !self.clients.contains(&key) {
                self.writes += 1;
                self.maps.put_source(key)?;
                self.clients.insert(key);
            }
        }
        Ok(())
    }

    /// Deletes the ranges that are to be deleted.
    pub(super) fn delete_sources(&mut self, errors: &mut Vec<MapError>) {
        let keys: Vec<SourceKey> = self.sources_to_delete.iter().copied().collect();
        for key in keys {
            self.writes += 1;
            match self.maps.delete_source(key) {
                Ok(()) => {
                    self.sources_to_delete.remove(&key);
                    let id = ServiceId::from_be_bytes(key.service);
                    if let Some(record) = self.records.get_mut(&id) {
                        record.source_deleted(&key);
                    }
                    self.clients.remove(&key);
                }
                Err(error) => errors.push(error),
            }
        }
    }
}

/// What an audit compares: each map as it was written.
impl<M: LbMaps> Shadow<M> {
    pub(super) fn backends(&self) -> impl Iterator<Item = (BackendId, lb_abi::Backend)> {
        self.backends.written().map(|(id, backend)| (id, backend.value()))
    }

    /// Whether a number of a backend is in use.
    pub(super) fn has_backend(&self, id: BackendId) -> bool {
        self.backends.has(id)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (SlotKey, BackendId)> {
        let records = self.records.iter();
        records.flat_map(|(&id, record)| record.all_entries(id))
    }

    pub(super) fn is_slot_to_delete(&self, key: &SlotKey) -> bool {
        self.slots_to_delete.contains_key(key)
    }

    /// Entries whose slots are complete; the others will be replaced, or deleted: a number that no service port and no frontend has.
    pub(super) fn services(&self) -> impl Iterator<Item = (ServiceId, Service)> {
        let is_removable = |id: ServiceId| self.retired.contains(&id) && self.is_unnamed(id);
        let records = self.records.iter();
        records
            .filter(move |(id, record)| record.is_in_map() && record.is_intact() && !is_removable(**id))
            .map(|(&id, record)| (id, record.value()))
    }

    pub(super) fn has_service(&self, id: ServiceId) -> bool {
        self.record(id).is_some_and(Record::is_in_map)
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = (ServiceId, Service)> {
        let records = self.records.iter();
        records.filter_map(|(&id, record)| {
            let kept = record.kept().filter(|kept| kept.is_in_map());
            Some((id, kept.map(Kept::value)?))
        })
    }

    /// Entries that are not to be deleted.
    pub(super) fn sources(&self) -> impl Iterator<Item = (SourceKey, u32)> {
        let ranges = self.records.values().flat_map(Record::sources);
        ranges
            .chain(&self.clients)
            .filter(move |key| !self.is_source_to_delete(key))
            .map(|&key| (key, SOURCE))
    }

    pub(super) fn is_source_to_delete(&self, key: &SourceKey) -> bool {
        self.sources_to_delete.contains(key)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = (Address, u32)> {
        let there = self.addresses.written().iter();
        there.map(|(&address, &flags)| (address, flags))
    }

    pub(super) fn frontends(&self) -> impl Iterator<Item = (FrontendKey, Frontend)> {
        self.frontends.iter().map(|(&key, &value)| (key, value))
    }
}

/// What an audit repairs: the maps become what the shadow says already.
impl<M: LbMaps> Shadow<M> {
    /// Puts missing backends.
    pub(super) fn restore_backends(
        &mut self,
        missing: &[(BackendId, lb_abi::Backend)],
    ) -> Result<(), MapError> {
        self.maps.put_backends(missing).map_err(|partial| partial.error)
    }

    /// Replaces a wrong backend.
    pub(super) fn correct_backend(&mut self, id: BackendId, value: lb_abi::Backend) -> Result<(), MapError> {
        self.before_put(Map::Backends)?;
        self.maps.put_backend(id, value)?;
        self.freed[Map::Backends as usize] = true;
        Ok(())
    }

    /// Puts missing slots.
    pub(super) fn restore_slots(&mut self, missing: &[(SlotKey, BackendId)]) -> Result<(), MapError> {
        self.maps.put_slots(missing).map_err(|partial| partial.error)
    }

    /// Replaces a wrong slot.
    pub(super) fn correct_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        self.maps.put_slot(key, backend)?;
        self.barrier()
    }

    /// Puts a missing entry of SERVICES, or replaces a wrong one.
    pub(super) fn correct_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.maps.put_service(id, value)
    }

    /// Puts a missing entry of KEPT, or replaces a wrong one.
    pub(super) fn correct_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.before_put(Map::Kept)?;
        self.maps.put_kept(id, value)?;
        self.freed[Map::Kept as usize] = true;
        Ok(())
    }

    /// Puts a missing entry of SOURCES, or replaces a wrong one.
    pub(super) fn correct_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.maps.put_source(key)
    }

    /// Puts missing frontends.
    pub(super) fn restore_frontends(&mut self, missing: &[(FrontendKey, Frontend)]) -> Result<(), MapError> {
        self.write_frontends(missing).map_err(|partial| partial.error)
    }

    /// Replaces a wrong frontend.
    pub(super) fn correct_frontend(&mut self, frontend: (FrontendKey, Frontend)) -> Result<(), MapError> {
        self.restore_frontends(&[frontend])?;
        self.freed[Map::Frontends as usize] = true;
        Ok(())
    }

    /// Deletes entries that were not written, except what was written since they were seen.
    pub(super) fn delete_foreign(&mut self, foreign: &Contents) -> Result<(), MapError> {
        let frontends = foreign.frontends.iter().map(|(key, _)| *key);
        let frontends: Vec<FrontendKey> = frontends
            .filter(|key| !self.frontends.contains_key(key))
            .collect();
        self.freed[Map::Frontends as usize] |= !frontends.is_empty();
        self.maps
            .delete_frontends(&frontends)
            .map_err(|partial| partial.error)?;
        let addresses = foreign.addresses.iter().map(|(address, _)| *address);
        let addresses: Vec<Address> = addresses.filter(|address| !self.has_address(*address)).collect();
        self.freed[Map::Addresses as usize] |= !addresses.is_empty();
        self.maps
            .delete_addresses(&addresses)
            .map_err(|partial| partial.error)?;
        for &(id, _) in &foreign.kept {
            if !self.record(id).is_some_and(Record::is_in_kept) {
                self.maps.delete_kept(id)?;
                self.freed[Map::Kept as usize] = true;
            }
        }
        let behind =
            foreign.services.len() + foreign.slots.len() + foreign.sources.len() + foreign.backends.len();
        if behind == 0 {
            return Ok(());
        }
        self.barrier()?;
        for &(id, _) in &foreign.services {
            if !self.has_service(id) {
                self.maps.delete_service(id)?;
            }
        }
        let is_foreign = |key: &SlotKey| {
            let record = self.record(key.service);
            !record.is_some_and(|record| record.has_entry(*key)) && !self.is_slot_to_delete(key)
        };
        let slots = foreign.slots.iter().map(|(key, _)| *key);
        let slots: Vec<SlotKey> = slots.filter(is_foreign).collect();
        self.maps.delete_slots(&slots).map_err(|partial| partial.error)?;
        for (key, _) in &foreign.sources {
            let record = self.record(ServiceId::from_be_bytes(key.service));
            let is_range = record.is_some_and(|record| record.sources().contains(key));
            if !is_range && !self.clients.contains(key) {
                self.maps.delete_source(*key)?;
            }
        }
        for &(id, _) in &foreign.backends {
            if !self.has_backend(id) {
                self.maps.delete_backend(id)?;
            }
        }
        Ok(())
    }
}

/// How many of the entries of an operation were written.
fn done(result: &Result<(), Partial>, all: usize) -> usize {
    result.as_ref().map_or_else(|partial| partial.done, |()| all)
}

/// Runs an operation on all keys, and skips those that fail. The result: the keys that did not.
fn all_but_failed<K: Copy>(
    keys: &[K],
    errors: &mut Vec<MapError>,
    mut operation: impl FnMut(&[K]) -> Result<(), Partial>,
) -> Vec<K> {
    let mut succeeded = Vec::with_capacity(keys.len());
    let mut rest = keys;
    while !rest.is_empty() {
        match operation(rest) {
            Ok(()) => {
                succeeded.extend(rest);
                break;
            }
            Err(Partial { done, error }) => {
                errors.push(error);
                succeeded.extend(&rest[..done]);
                rest = &rest[done + 1..];
            }
        }
    }
    succeeded
}
