//! Reads pinned maps back into bookkeeping. Whatever can't have been written in full and in order by an agent of
//! this version is kept out of what may be built upon, and goes after the first sync.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use lb_abi::{BackendId, Service, ServiceId, SlotKey, SourceKey};

use super::{
    record::{Kept, Record, entries, members, services_of},
    written::Written,
};
use crate::{
    maps::{Contents, SOURCE},
    resolve,
    transport::Backend,
};

/// What the maps hold.
pub(super) fn adopt(contents: &Contents) -> Written {
    let mut written = Written::new();
    for &(id, value) in &contents.backends {
        written.backends.adopt(id, Backend::from_value(value));
    }
    written.slots = contents.slots.len();
    // A slot of a backend that is not there still carries its number.
    for &(_, backend) in &contents.slots {
        written.backends.adopt(backend, None);
        written.backends.carried(backend);
    }

    let services: BTreeMap<ServiceId, Service> = contents.services.iter().copied().collect();
    for id in numbers(contents) {
        if written.ids.contains(id) {
            written.ids.reserve(id);
        }
        let record = Record {
            in_map: services.contains_key(&id),
            ..Record::default()
        };
        written.records.insert(id, record);
        written.unclaimed.insert(id);
    }
    adopt_generations(&mut written, contents, &services);
    adopt_sources(&mut written, contents);
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

/// Every service port's number that anything carries: none of them may be handed out before that is gone.
fn numbers(contents: &Contents) -> BTreeSet<ServiceId> {
    let slots = contents.slots.iter().map(|(key, _)| key.service);
    let frontends = contents
        .frontends
        .iter()
        .flat_map(|(_, value)| services_of(value));
    let sources = contents
        .sources
        .iter()
        .map(|(key, _)| ServiceId::from_be_bytes(key.service))
        .filter(|&id| id != SourceKey::CLUSTER);
    let values = contents.services.iter().chain(&contents.kept).map(|(id, _)| *id);
    slots.chain(frontends).chain(sources).chain(values).collect()
}

/// The slots of a number, by generation and index.
type Slots = BTreeMap<SlotKey, BackendId>;

fn adopt_generations(written: &mut Written, contents: &Contents, services: &BTreeMap<ServiceId, Service>) {
    let kept: BTreeMap<ServiceId, Service> = contents.kept.iter().copied().collect();
    let mut slots = BTreeMap::<ServiceId, Slots>::new();
    for &(key, backend) in &contents.slots {
        slots.entry(key.service).or_default().insert(key, backend);
    }
    let ids: Vec<ServiceId> = written.records.keys().copied().collect();
    for id in ids {
        let mut slots = slots.remove(&id).unwrap_or_default();
        let current = services.get(&id).copied().unwrap_or_default();
        let usable = |slots: &[BackendId]| slots.iter().all(|&slot| written.backends.get(slot).is_some());
        let mut found = Record::default();
        if current.generation != 0 {
            found.generation = current.generation;
            match take_whole(&mut slots, id, current, usable) {
                Some(whole) => (found.slots, found.intact) = (whole, true),
                None => found.scattered = take(&mut slots, id, current.generation, 0..=named(current)),
            }
            // A generation with a member too many, or too few, is replaced as a whole.
            let noted = take(&mut slots, id, current.generation, SlotKey::MEMBER..=u32::MAX);
            if !noted.is_empty() {
                let mut expected = members(id, current.generation, &found.slots);
                expected.sort_unstable();
                if found.intact && noted == expected {
                    found.members = true;
                } else {
                    let whole = std::mem::take(&mut found.slots);
                    found.scattered.extend(entries(id, current.generation, &whole));
                    found.scattered.extend(noted);
                    found.intact = false;
                }
            }
        }
        if let Some(&value) = kept.get(&id) {
            found.kept = Some(adopt_kept(&mut slots, id, value, &found, usable));
        }
        written.adopt_generation(id, current.generation);
        written.leaving_slots.append(&mut slots);
        if let Some(record) = written.records.get_mut(&id) {
            *record = Record {
                in_map: record.in_map,
                ..found
            };
        }
    }
}

fn adopt_kept(
    slots: &mut Slots,
    id: ServiceId,
    value: Service,
    record: &Record,
    usable: impl Fn(&[BackendId]) -> bool,
) -> Kept {
    let mut kept = Kept {
        generation: value.generation,
        count: value.slots,
        slots: Box::default(),
        in_map: true,
        sound: false,
    };
    if value.generation == 0 || value.slots == 0 {
        return kept;
    }
    if value.generation == record.generation {
        kept.sound = record.intact && record.value() == value;
    } else if let Some(whole) = take_whole(slots, id, value, usable) {
        (kept.slots, kept.sound) = (whole, true);
    }
    kept
}

/// The last index that a value can name; what is below [`SlotKey::MEMBER`] is a slot. (Of no slots, one too many.)
fn named(value: Service) -> u32 {
    value.slots.saturating_sub(1).min(SlotKey::MEMBER - 1)
}

/// Takes the slots of a generation out, if they are all there and an agent of this version has written their backends.
fn take_whole(
    slots: &mut Slots,
    id: ServiceId,
    value: Service,
    usable: impl Fn(&[BackendId]) -> bool,
) -> Option<Box<[BackendId]>> {
    if value.slots == 0 {
        return Some(Box::default());
    }
    let found = generation(slots, id, value.generation, 0..=named(value));
    let backends: Box<[BackendId]> = found.iter().map(|(_, backend)| *backend).collect();
    // What is there is counted, not what is named: a corrupt service may name four billion.
    if backends.len() != value.slots as usize || !usable(&backends) {
        return None;
    }
    for (key, _) in found {
        slots.remove(&key);
    }
    Some(backends)
}

/// Takes entries of a generation out.
fn take(
    slots: &mut Slots,
    id: ServiceId,
    number: u32,
    indexes: RangeInclusive<u32>,
) -> Vec<(SlotKey, BackendId)> {
    let found = generation(slots, id, number, indexes);
    for (key, _) in &found {
        slots.remove(key);
    }
    found
}

fn generation(
    slots: &Slots,
    service: ServiceId,
    generation: u32,
    indexes: RangeInclusive<u32>,
) -> Vec<(SlotKey, BackendId)> {
    let [first, last] = [indexes.start(), indexes.end()].map(|&index| SlotKey {
        service,
        generation,
        index,
    });
    let found = slots.range(first..=last);
    found.map(|(&key, &backend)| (key, backend)).collect()
}

fn adopt_sources(written: &mut Written, contents: &Contents) {
    for &(key, value) in &contents.sources {
        let id = resolve::range(key).map(|(id, _)| id).filter(|_| value == SOURCE);
        let of = match id {
            Some(SourceKey::CLUSTER) => Some(&mut written.clients),
            Some(id) => written.records.get_mut(&id).map(|record| &mut record.sources),
            None => None,
        };
        of.unwrap_or(&mut written.leaving_sources).insert(key);
    }
}
