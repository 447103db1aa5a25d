//! Writes a service port: backends, slots of a new generation, the switch, then its frontends.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, capacity, frontend_flags};

use super::{
    Reconciler,
    written::{PortRef, Record},
};
use crate::{
    maps::{LbMaps, MapError},
    plan::{PortPlan, Selection, Set},
    transport::Backend,
};

impl<M: LbMaps> Reconciler<M> {
    /// Makes a service port what it should be. On an error what it was keeps working.
    pub(super) fn write(&mut self, at: PortRef, plan: &PortPlan) -> Result<(), MapError> {
        let wanted: BTreeSet<_> = plan
            .frontends
            .keys()
            .map(|frontend| frontend.frontend_key())
            .collect();
        self.written.want(at, &wanted);
        if self.written.id(at).is_none()
            && let Some(id) = self.written.adoptable(&wanted)
        {
            self.written.assign(at, id);
        }
        let addresses = &self.written.addresses;
        if self.written.id(at).is_none() && !wanted.iter().any(|key| addresses.is_there(key.address)) {
            // None of its frontends has a place; what failed is named already.
            return Ok(());
        }
        let slots = plan.slots(Set::Cluster);
        let id = match self.written.id(at) {
            Some(id) if self.written.holds(id, &slots) => id,
            // One store switches all frontends; none of them may be somebody else's.
            Some(id) if self.written.serves_only(id, &wanted) => {
                self.stage(id, &slots)?;
                id
            }
            // A frontend that this port gives up must not see its new backends: a number of its own for them.
            _ => {
                let id = self.build(&slots)?;
                self.written.assign(at, id);
                id
            }
        };
        let value = Frontend {
            internal: id,
            external: id,
            flags: match plan.selection {
                Selection::Random => 0,
                Selection::Maglev => frontend_flags::MAGLEV,
            },
            affinity_seconds: 0,
        };
        let placed = self.place(&wanted, value);
        if self
            .written
            .records
            .get(&id)
            .is_some_and(|record| record.frontends.is_empty())
        {
            // Nothing leads there: no reason to keep the room.
            self.written.unassign(at);
        }
        placed
    }

    /// Where an address is not in the map, and so its frontends can't be, that is named already.
    fn place(&mut self, wanted: &BTreeSet<FrontendKey>, value: Frontend) -> Result<(), MapError> {
        let mut result = Ok(());
        for &key in wanted {
            let there = self.written.frontends.get(&key) == Some(&value);
            if there || !self.written.addresses.is_there(key.address) {
                continue;
            }
            match self.put_frontend(key, value) {
                Ok(()) => self.written.placed(key, value),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        if self.written.frontend_freed {
            self.barrier()?;
        }
        self.maps.put_frontend(key, value)
    }

    /// Writes slots under a new number.
    fn build(&mut self, slots: &[Backend]) -> Result<ServiceId, MapError> {
        let full = MapError::Full {
            map: "SERVICES",
            capacity: capacity::SERVICES,
        };
        let id = self.written.ids.allocate().ok_or(full)?;
        self.written.records.insert(id, Record::default());
        match self.stage(id, slots) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.written.retire(id);
                Err(error)
            }
        }
    }

    /// Writes backends and a new generation of slots, and switches to it.
    fn stage(&mut self, id: ServiceId, slots: &[Backend]) -> Result<(), MapError> {
        let backends = self.put_backends(slots)?;
        let generation = self.written.next_generation(id);
        let mut written = Vec::with_capacity(slots.len());
        let switched = self
            .put_slots(id, generation, &backends, &mut written)
            .and_then(|()| {
                let slots = written.len().try_into().unwrap_or(u32::MAX);
                self.maps.put_service(id, Service { generation, slots })
            });
        if let Err(error) = switched {
            self.take_back(written);
            return Err(error);
        }
        if let Some(record) = self.written.records.get_mut(&id) {
            (record.in_map, record.intact) = (true, true);
            let leaving = std::mem::replace(&mut record.slots, written);
            self.written.leaving_slots.extend(leaving);
        }
        Ok(())
    }

    /// Deletes slots that never were current, so that no program can have found them: at once, because others may
    /// fit where these did not.
    fn take_back(&mut self, slots: Vec<(SlotKey, BackendId)>) {
        for (key, backend) in slots {
            match self.maps.delete_slot(key) {
                Ok(()) => self.written.backends.released(backend),
                // Collected with the others, and tried again there.
                Err(_) => _ = self.written.leaving_slots.insert(key, backend),
            }
        }
    }

    /// The number of each slot's backend.
    fn put_backends(&mut self, slots: &[Backend]) -> Result<Vec<BackendId>, MapError> {
        let mut ids = BTreeMap::new();
        for &backend in slots {
            if ids.contains_key(&backend) {
                continue;
            }
            let id = match self.written.backends.id(&backend) {
                Some(id) => id,
                None => self.put_backend(backend)?,
            };
            ids.insert(backend, id);
        }
        Ok(slots.iter().map(|backend| ids[backend]).collect())
    }

    fn put_backend(&mut self, backend: Backend) -> Result<BackendId, MapError> {
        let full = MapError::Full {
            map: "BACKENDS",
            capacity: capacity::BACKENDS,
        };
        let id = self.written.backends.allocate().ok_or(full)?;
        match self.maps.put_backend(id, backend.value()) {
            Ok(()) => {
                self.written.backends.put(id, backend);
                Ok(id)
            }
            Err(error) => {
                self.written.backends.give_back(id);
                Err(error)
            }
        }
    }

    /// Adds to `slots` what has been put, also on an error.
    fn put_slots(
        &mut self,
        service: ServiceId,
        generation: u32,
        backends: &[BackendId],
        slots: &mut Vec<(SlotKey, BackendId)>,
    ) -> Result<(), MapError> {
        for (index, &backend) in (0..).zip(backends) {
            let key = SlotKey {
                service,
                generation,
                index,
            };
            self.maps.put_slot(key, backend)?;
            self.written.backends.carried(backend);
            slots.push((key, backend));
        }
        Ok(())
    }
}
