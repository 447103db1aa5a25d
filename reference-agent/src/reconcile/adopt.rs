//! Reads pinned maps back into the shadow. Entries that an agent of this version can't have written in full and in order
//! are not built upon, and are deleted after the first sync.
//!
//! `docs/invariants.md` ("One agent on a node") says why a restart does not fill new maps instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use lb_abi::{BackendId, Service, ServiceId, SlotKey, SourceKey};

use super::{
    service_entries::{Kept, Record, Slots, entries, members, services_of},
    shadow::Shadow,
};
use crate::{
    endpoint_address::Backend,
    maps::{Contents, LbMaps, MapError, SOURCE},
    resolve,
};

/// Takes over the maps with what is in them.
pub(super) fn adopt<M: LbMaps>(maps: M) -> Result<Shadow<M>, MapError> {
    let contents = maps.contents()?;
    let mut shadow = Shadow::new(maps);
    for &(id, value) in &contents.backends {
        shadow.adopt_backend(id, Backend::from_value(value));
    }
    for &(_, backend) in &contents.slots {
        shadow.adopt_slot(backend);
    }
    adopt_numbers(&mut shadow, &contents);
    for &(key, value) in &contents.sources {
        let of = resolve::range(key).map(|(id, _)| id).filter(|_| value == SOURCE);
        shadow.adopt_source(key, of);
    }
    for &(address, flags) in &contents.addresses {
        shadow.adopt_address(address, flags);
    }
    for &(key, value) in &contents.frontends {
        shadow.adopt_frontend(key, value);
    }
    Ok(shadow)
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

/// The slots of a number that no record has taken yet, by generation and index.
type Unclaimed = BTreeMap<SlotKey, BackendId>;

fn adopt_numbers<M: LbMaps>(shadow: &mut Shadow<M>, contents: &Contents) {
    let services: BTreeMap<ServiceId, Service> = contents.services.iter().copied().collect();
    let kept: BTreeMap<ServiceId, Service> = contents.kept.iter().copied().collect();
    let mut slots = BTreeMap::<ServiceId, Unclaimed>::new();
    for &(key, backend) in &contents.slots {
        slots.entry(key.service).or_default().insert(key, backend);
    }
    for id in numbers(contents) {
        let mut slots = slots.remove(&id).unwrap_or_default();
        let usable = |slots: &[BackendId]| slots.iter().all(|&slot| shadow.backend(slot).is_some());
        let mut record = Record::adopted(services.contains_key(&id));
        if let Some(&current) = services.get(&id).filter(|current| current.generation != 0) {
            adopt_current(&mut record, &mut slots, id, current, usable);
        }
        if let Some(&value) = kept.get(&id) {
            record.adopt_kept(adopt_kept(&mut slots, id, value, &record, usable));
        }
        shadow.adopt_number(id, record, slots);
    }
}

fn adopt_current(
    record: &mut Record,
    slots: &mut Unclaimed,
    id: ServiceId,
    current: Service,
    usable: impl Fn(&[BackendId]) -> bool,
) {
    let number = current.generation;
    let whole = take_whole(slots, id, current, usable);
    let mut scattered = match &whole {
        Some(_) => Slots::new(),
        None => take(slots, id, number, 0..=named(current)),
    };
    // A generation with a member too many, or too few, is replaced as a whole.
    let noted = take(slots, id, number, SlotKey::MEMBER..=u32::MAX);
    if let Some(whole) = whole {
        let mut expected = members(id, number, &whole);
        expected.sort_unstable();
        if noted.is_empty() || noted == expected {
            record.adopt_slots(number, whole, !noted.is_empty());
            return;
        }
        scattered.extend(entries(id, number, &whole));
    }
    scattered.extend(noted);
    record.adopt_scattered(number, scattered);
}

fn adopt_kept(
    slots: &mut Unclaimed,
    id: ServiceId,
    value: Service,
    record: &Record,
    usable: impl Fn(&[BackendId]) -> bool,
) -> Kept {
    let current = record.value();
    let slots = if value.generation == 0 || value.slots == 0 {
        None
    } else if value.generation == current.generation {
        (record.is_intact() && current == value).then(Box::default)
    } else {
        take_whole(slots, id, value, usable)
    };
    Kept::adopted(value, slots)
}

/// The last index that a value can name; what is below [`SlotKey::MEMBER`] is a slot. (Of no slots, one too many.)
fn named(value: Service) -> u32 {
    value.slots.saturating_sub(1).min(SlotKey::MEMBER - 1)
}

/// Takes the slots of a generation out, if they are all there and an agent of this version has written their backends.
fn take_whole(
    slots: &mut Unclaimed,
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
fn take(slots: &mut Unclaimed, id: ServiceId, number: u32, indexes: RangeInclusive<u32>) -> Slots {
    let found = generation(slots, id, number, indexes);
    for (key, _) in &found {
        slots.remove(key);
    }
    found
}

fn generation(slots: &Unclaimed, service: ServiceId, generation: u32, indexes: RangeInclusive<u32>) -> Slots {
    let [first, last] = [indexes.start(), indexes.end()].map(|&index| SlotKey {
        service,
        generation,
        index,
    });
    let found = slots.range(first..=last);
    found.map(|(&key, &backend)| (key, backend)).collect()
}
