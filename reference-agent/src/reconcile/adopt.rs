//! Reads pinned maps back into bookkeeping. Whatever can't have been written in full and in order by an agent of
//! this version is kept out of what may be built upon, and goes after the first sync.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{Service, ServiceId, SlotKey};

use super::written::{Record, Written, services_of};
use crate::{maps::Contents, transport::Backend};

/// What the maps hold.
pub(super) fn adopt(contents: &Contents) -> Written {
    let mut written = Written::new();
    for &(id, value) in &contents.backends {
        written.backends.adopt(id, Backend::from_value(value));
    }
    // A slot of a backend that is not there still carries its number.
    for &(_, backend) in &contents.slots {
        written.backends.adopt(backend, None);
        written.backends.carried(backend);
    }

    let services: BTreeMap<ServiceId, Service> = contents.services.iter().copied().collect();
    let mut ids: BTreeSet<ServiceId> = services.keys().copied().collect();
    ids.extend(contents.slots.iter().map(|(key, _)| key.service));
    ids.extend(
        contents
            .frontends
            .iter()
            .flat_map(|(_, value)| services_of(value)),
    );
    for &id in &ids {
        if written.ids.contains(id) {
            written.ids.reserve(id);
        }
        written.records.insert(
            id,
            Record {
                in_map: services.contains_key(&id),
                ..Record::default()
            },
        );
    }
    written.unclaimed = ids;

    for &(key, backend) in &contents.slots {
        let service = services.get(&key.service).copied().unwrap_or_default();
        let record = written.records.get_mut(&key.service);
        match record.filter(|_| is_current(key, service)) {
            Some(record) => record.slots.push((key, backend)),
            None => _ = written.leaving_slots.insert(key, backend),
        }
    }
    for (id, service) in services {
        written.adopt_generation(id, service.generation);
        let Some(record) = written.records.get_mut(&id) else {
            continue;
        };
        record.intact = service.generation != 0
            && record.slots.len() == service.slots as usize
            && record
                .slots
                .iter()
                .all(|(_, backend)| written.backends.usable(*backend));
    }

    for &(address, flags) in &contents.addresses {
        written.addresses.adopt(address, flags);
    }
    for &(key, value) in &contents.frontends {
        written.placed(key, value);
        // Right only if a plan says so.
        written.misplaced.insert(key);
    }
    written
}

fn is_current(key: SlotKey, service: Service) -> bool {
    service.generation != 0 && service.generation == key.generation && key.index < service.slots
}
