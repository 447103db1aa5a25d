//! Writes a service port: backends, slots of a new generation, the switch, then its frontends.

use std::collections::BTreeSet;

use lb_abi::{BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, capacity};

use super::{
    Reconciler,
    written::{PortRef, Record},
};
use crate::{
    maps::{LbMaps, MapError},
    plan::PortPlan,
    transport::TransportAddress,
};

impl<M: LbMaps> Reconciler<M> {
    /// Makes a service port what it should be. On an error what it was keeps working.
    pub(super) fn write(&mut self, at: PortRef, plan: &PortPlan) -> Result<(), MapError> {
        let wanted: BTreeSet<_> = plan
            .frontends
            .iter()
            .map(|frontend| frontend.frontend_key())
            .collect();
        self.written.want(at, &wanted);
        if self.written.id(at).is_none()
            && let Some(id) = self.written.adoptable(&wanted)
        {
            self.written.assign(at, id);
        }
        let id = match self.written.id(at) {
            Some(id) if self.written.holds(id, &plan.backends) => id,
            // One store switches all frontends; none of them may be somebody else's.
            Some(id) if self.written.serves_only(id, &wanted) => {
                self.stage(id, &plan.backends)?;
                id
            }
            // A frontend that this port gives up must not see its new backends: a number of its own for them.
            _ => {
                let id = self.build(&plan.backends)?;
                self.written.assign(at, id);
                id
            }
        };
        let placed = self.place(id, &wanted);
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

    fn place(&mut self, service: ServiceId, wanted: &BTreeSet<FrontendKey>) -> Result<(), MapError> {
        let value = Frontend { service, flags: 0 };
        let mut result = Ok(());
        for &key in wanted {
            if self.written.frontends.get(&key) == Some(&value) {
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
            self.maps.barrier()?;
            self.written.frontend_freed = false;
        }
        self.maps.put_frontend(key, value)
    }

    /// Writes backends under a new number.
    fn build(&mut self, backends: &BTreeSet<TransportAddress>) -> Result<ServiceId, MapError> {
        let full = MapError::Full {
            map: "SERVICES",
            capacity: capacity::SERVICES,
        };
        let id = self.written.ids.allocate().ok_or(full)?;
        self.written.records.insert(id, Record::default());
        match self.stage(id, backends) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.written.retire(id);
                Err(error)
            }
        }
    }

    /// Writes backends and a new generation of slots, and switches to it.
    fn stage(&mut self, id: ServiceId, backends: &BTreeSet<TransportAddress>) -> Result<(), MapError> {
        let backends = self.put_backends(backends)?;
        let generation = self.written.next_generation(id);
        let mut slots = Vec::with_capacity(backends.len());
        let switched = self
            .put_slots(id, generation, &backends, &mut slots)
            .and_then(|()| {
                let slots = slots.len().try_into().unwrap_or(u32::MAX);
                self.maps.put_service(id, Service { generation, slots })
            });
        let leaving = match (&switched, self.written.records.get_mut(&id)) {
            (Ok(()), Some(record)) => {
                (record.in_map, record.intact) = (true, true);
                std::mem::replace(&mut record.slots, slots)
            }
            _ => slots,
        };
        self.written.leaving_slots.extend(leaving);
        switched
    }

    fn put_backends(&mut self, addresses: &BTreeSet<TransportAddress>) -> Result<Vec<BackendId>, MapError> {
        let mut ids = Vec::with_capacity(addresses.len());
        for &address in addresses {
            let id = match self.written.backends.id(&address) {
                Some(id) => id,
                None => self.put_backend(address)?,
            };
            ids.push(id);
        }
        Ok(ids)
    }

    fn put_backend(&mut self, address: TransportAddress) -> Result<BackendId, MapError> {
        let full = MapError::Full {
            map: "BACKENDS",
            capacity: capacity::BACKENDS,
        };
        let id = self.written.backends.allocate().ok_or(full)?;
        match self.maps.put_backend(id, address.backend()) {
            Ok(()) => {
                self.written.backends.put(id, address);
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
