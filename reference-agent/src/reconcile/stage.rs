//! Backends, slots of a new generation, and the switch to it.

use std::collections::BTreeSet;

use lb_abi::{BackendId, Service, ServiceId, SlotKey, capacity};

use super::{
    Reconciler,
    record::{count, entries, members},
};
use crate::{
    maps::{LbMaps, MapError, Partial},
    transport::Backend,
};

/// A generation of slots that is not current yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged {
    generation: u32,
    /// Whether each backend is noted as a member.
    members: bool,
}

impl<M: LbMaps> Reconciler<M> {
    /// Writes slots under a new number.
    pub(super) fn build(&mut self, slots: &[Backend], members: bool) -> Result<ServiceId, MapError> {
        let backends = self.put_backends(slots)?;
        self.build_of(&backends, members)
    }

    /// The same, of backends that are in the map.
    pub(super) fn build_of(&mut self, backends: &[BackendId], members: bool) -> Result<ServiceId, MapError> {
        let id = self.allocate()?;
        match self.stage(id, backends, members) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.written.retired.insert(id);
                Err(error)
            }
        }
    }

    /// Writes a new generation of slots, and switches to it. The one before leaves, unless it is kept.
    pub(super) fn stage(
        &mut self,
        id: ServiceId,
        backends: &[BackendId],
        with_members: bool,
    ) -> Result<(), MapError> {
        let mut new = Vec::new();
        let staged = self.next_slots(id, backends, with_members, &mut new);
        self.put_slots(&new)?;
        self.switch_to(id, staged, backends.into(), &new)
    }

    /// The slots of the next generation, to be put with others.
    pub(super) fn next_slots(
        &mut self,
        id: ServiceId,
        backends: &[BackendId],
        with_members: bool,
        new: &mut Vec<(SlotKey, BackendId)>,
    ) -> Staged {
        let generation = self.written.next_generation(id);
        new.extend(entries(id, generation, backends));
        if with_members {
            new.extend(members(id, generation, backends));
        }
        Staged {
            generation,
            members: with_members,
        }
    }

    /// Switches to a generation whose slots, `new`, are in the map.
    pub(super) fn switch_to(
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
        if let Err(error) = self.switch(id, value) {
            self.take_back(new);
            return Err(error);
        }
        if let Some(record) = self.written.records.get_mut(&id) {
            self.written.leaving_slots.extend(record.take_current(id));
            (record.in_map, record.intact, record.members) = (true, true, members);
            record.generation = generation;
            record.slots = backends;
        }
        Ok(())
    }

    /// Puts entries of SLOTS that nothing leads to: all of them, or none.
    pub(super) fn put_slots(&mut self, new: &[(SlotKey, BackendId)]) -> Result<(), MapError> {
        self.writes += new.len() as u64;
        let result = self.maps.put_slots(new);
        let done = result
            .as_ref()
            .map_or_else(|partial| partial.done, |()| new.len());
        self.written.slots += done;
        for (_, backend) in &new[..done] {
            self.written.backends.carried(*backend);
        }
        result.map_err(|Partial { error, .. }| {
            self.take_back(&new[..done]);
            error
        })
    }

    /// Deletes slots that never were current, so that no program can have found them: at once, because others may
    /// fit where these did not.
    fn take_back(&mut self, slots: &[(SlotKey, BackendId)]) {
        let keys: Vec<SlotKey> = slots.iter().map(|(key, _)| *key).collect();
        let result = self.maps.delete_slots(&keys);
        let done = result.map_or_else(|partial| partial.done, |()| slots.len());
        self.written.slots -= done;
        for (_, backend) in &slots[..done] {
            self.written.backends.released(*backend);
        }
        // Collected with the others, and tried again there.
        self.written.leaving_slots.extend(slots[done..].iter().copied());
    }

    /// The number of each of these backends, which are in the map then.
    pub(super) fn put_backends(&mut self, backends: &[Backend]) -> Result<Vec<BackendId>, MapError> {
        let known = &self.written.backends;
        let new: BTreeSet<Backend> = backends
            .iter()
            .copied()
            .filter(|backend| known.id(backend).is_none())
            .collect();
        self.put_new_backends(&new)?;
        let ids = backends
            .iter()
            .filter_map(|backend| self.written.backends.id(backend));
        Ok(ids.collect())
    }

    /// Puts backends that are not in the map.
    pub(super) fn put_new_backends(&mut self, new: &BTreeSet<Backend>) -> Result<(), MapError> {
        if new.is_empty() {
            return Ok(());
        }
        if self.written.backends.freed {
            self.barrier()?;
        }
        let mut entries = Vec::with_capacity(new.len());
        for &backend in new {
            let Some(id) = self.written.backends.allocate() else {
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
        let done = result
            .as_ref()
            .map_or_else(|partial| partial.done, |()| entries.len());
        for (index, (id, backend)) in entries.into_iter().enumerate() {
            if index < done {
                self.written.backends.put(id, backend);
            } else {
                self.written.backends.give_back(id);
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
}
