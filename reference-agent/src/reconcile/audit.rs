//! The maps against bookkeeping, map by map: what somebody else has changed is put in order again.

use std::hash::Hash;

use lb_abi::{Service, ServiceId};

use super::Reconciler;
use crate::{
    hash::HashMap,
    maps::{Contents, LbMaps, Map, MapError, Partial, SOURCE},
};

/// How many wrong entries of a map are repaired in one call: between replacing two, every program that was running
/// must have ended, which takes some 10 ms.
pub const WRONG_LIMIT: usize = 16;

/// What was found different in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Which map.
    pub map: Map,
    /// Entries that were written and are not there; written again.
    pub missing: usize,
    /// Entries that have another value than was written; written again.
    pub wrong: usize,
    /// Entries that were not written; removed at the end of the round.
    pub foreign: usize,
}

/// How far a round has come.
#[derive(Debug, Default)]
pub(super) struct Audit {
    next: usize,
    /// What the maps of this round had that nobody has written.
    foreign: Contents,
}

/// The difference of one map.
struct Difference<K, V> {
    missing: Vec<(K, V)>,
    wrong: Vec<(K, V)>,
    foreign: Vec<(K, V)>,
}

impl<M: LbMaps> Reconciler<M> {
    /// Compares the next map. Those that lead to others come after them; what is foreign is removed when all have
    /// been looked at, in the opposite order.
    pub(crate) fn audit(&mut self) -> Result<Drift, MapError> {
        let map = Map::ALL[self.audit.next];
        // One that fails is tried again in the next round, and does not hold the others up.
        self.audit.next = (self.audit.next + 1) % Map::ALL.len();
        let drift = self.audit_map(map);
        if self.audit.next == 0 {
            let foreign = std::mem::take(&mut self.audit.foreign);
            self.remove_foreign(&foreign)?;
        }
        drift
    }

    fn audit_map(&mut self, map: Map) -> Result<Drift, MapError> {
        let found = self.maps.contents_of(map)?;
        match map {
            Map::Backends => self.audit_backends(found),
            Map::Slots => self.audit_slots(found),
            Map::Services => self.audit_services(found),
            Map::Kept => self.audit_kept(found),
            Map::Sources => self.audit_sources(found),
            Map::Addresses => self.audit_addresses(found),
            Map::Frontends => self.audit_frontends(found),
        }
    }

    /// How many entries each map has, in the order of [`Map::ALL`].
    pub(crate) fn entries(&self) -> [usize; Map::ALL.len()] {
        let written = &self.written;
        let records = written.records.values();
        let count = |which: fn(&super::record::Record) -> usize| records.clone().map(which).sum::<usize>();
        Map::ALL.map(|map| match map {
            Map::Backends => written.backends.len(),
            Map::Slots => written.slots,
            Map::Services => count(|record| usize::from(record.in_map)),
            Map::Kept => count(|record| usize::from(record.is_in_kept())),
            Map::Sources => count(|record| record.sources.len()) + written.clients.len(),
            Map::Addresses => written.addresses.there().len(),
            Map::Frontends => written.frontends.len(),
        })
    }

    fn audit_backends(&mut self, found: Contents) -> Result<Drift, MapError> {
        let backends = &self.written.backends;
        let expected = backends.there().map(|(id, backend)| (id, backend.value()));
        let difference = compare(found.backends, expected, |id| backends.has(*id));
        let drift = difference.drift(Map::Backends);
        self.maps
            .put_backends(&difference.missing)
            .map_err(|partial| partial.error)?;
        for (id, value) in difference.wrong.into_iter().take(WRONG_LIMIT) {
            if self.written.backends.freed {
                self.barrier()?;
            }
            self.maps.put_backend(id, value)?;
            self.written.backends.freed = true;
        }
        self.audit.foreign.backends = difference.foreign;
        Ok(drift)
    }

    fn audit_slots(&mut self, found: Contents) -> Result<Drift, MapError> {
        let written = &self.written;
        let records = written.records.iter();
        let expected = records.flat_map(|(&id, record)| record.all_entries(id));
        let difference = compare(found.slots, expected, |key| {
            written.leaving_slots.contains_key(key)
        });
        let drift = difference.drift(Map::Slots);
        self.maps
            .put_slots(&difference.missing)
            .map_err(|partial| partial.error)?;
        for (key, backend) in difference.wrong.into_iter().take(WRONG_LIMIT) {
            self.maps.put_slot(key, backend)?;
            self.barrier()?;
        }
        self.audit.foreign.slots = difference.foreign;
        Ok(drift)
    }

    fn audit_services(&mut self, found: Contents) -> Result<Drift, MapError> {
        let written = &self.written;
        let records = written.records.iter();
        let expected = records
            .filter(|(_, record)| record.in_map && record.intact)
            .map(|(&id, record)| (id, record.value()));
        let difference = compare(found.services, expected, |id| {
            written.records.get(id).is_some_and(|record| record.in_map)
        });
        let drift = difference.drift(Map::Services);
        for (id, value) in difference.missing.into_iter().chain(difference.wrong) {
            self.maps.put_service(id, value)?;
        }
        self.audit.foreign.services = difference.foreign;
        Ok(drift)
    }

    fn audit_kept(&mut self, found: Contents) -> Result<Drift, MapError> {
        let records = self.written.records.iter();
        let expected = records.filter_map(|(&id, record)| {
            let kept = record.kept.as_ref().filter(|kept| kept.in_map)?;
            Some((id, kept.value()))
        });
        let difference: Difference<ServiceId, Service> = compare(found.kept, expected, |_| false);
        let drift = difference.drift(Map::Kept);
        for (id, value) in difference.missing.into_iter().chain(difference.wrong) {
            if self.written.kept_freed {
                self.barrier()?;
            }
            self.maps.put_kept(id, value)?;
            self.written.kept_freed = true;
        }
        self.audit.foreign.kept = difference.foreign;
        Ok(drift)
    }

    fn audit_sources(&mut self, found: Contents) -> Result<Drift, MapError> {
        let written = &self.written;
        let sources = written.records.values().flat_map(|record| &record.sources);
        let expected = sources
            .chain(&written.clients)
            .filter(|key| !written.leaving_sources.contains(key))
            .map(|&key| (key, SOURCE));
        let difference = compare(found.sources, expected, |key| {
            written.leaving_sources.contains(key)
        });
        let drift = difference.drift(Map::Sources);
        for (key, _) in difference.missing.into_iter().chain(difference.wrong) {
            self.maps.put_source(key)?;
        }
        self.audit.foreign.sources = difference.foreign;
        Ok(drift)
    }

    fn audit_addresses(&mut self, found: Contents) -> Result<Drift, MapError> {
        let expected = self.written.addresses.there().iter();
        let expected = expected.map(|(&address, &flags)| (address, flags));
        let difference = compare(found.addresses, expected, |_| false);
        let drift = difference.drift(Map::Addresses);
        let wrong = difference.wrong.into_iter().take(WRONG_LIMIT);
        for (address, flags) in difference.missing.into_iter().chain(wrong) {
            self.put_address(address, flags)?;
        }
        self.audit.foreign.addresses = difference.foreign;
        Ok(drift)
    }

    fn audit_frontends(&mut self, found: Contents) -> Result<Drift, MapError> {
        let expected = self.written.frontends.iter();
        let expected = expected.map(|(&key, &value)| (key, value));
        let difference = compare(found.frontends, expected, |_| false);
        let drift = difference.drift(Map::Frontends);
        let error = |partial: Partial| partial.error;
        self.put_frontends(&difference.missing).map_err(error)?;
        for frontend in difference.wrong.into_iter().take(WRONG_LIMIT) {
            self.put_frontends(&[frontend]).map_err(error)?;
            self.written.frontend_freed = true;
        }
        self.audit.foreign.frontends = difference.foreign;
        Ok(drift)
    }

    /// Removes what nobody has written, unless it was written since it was seen.
    fn remove_foreign(&mut self, foreign: &Contents) -> Result<(), MapError> {
        for (key, _) in &foreign.frontends {
            if !self.written.frontends.contains_key(key) {
                self.maps.delete_frontend(*key)?;
                self.written.frontend_freed = true;
            }
        }
        for (address, _) in &foreign.addresses {
            if !self.written.addresses.there().contains_key(address) {
                self.maps.delete_address(*address)?;
                self.written.addresses.freed = true;
            }
        }
        let records = &self.written.records;
        for (id, _) in &foreign.kept {
            if !records.get(id).is_some_and(super::record::Record::is_in_kept) {
                self.maps.delete_kept(*id)?;
                self.written.kept_freed = true;
            }
        }
        let behind =
            foreign.services.len() + foreign.slots.len() + foreign.sources.len() + foreign.backends.len();
        if behind == 0 {
            return Ok(());
        }
        self.barrier()?;
        for (id, _) in &foreign.services {
            let record = self.written.records.get(id);
            if !record.is_some_and(|record| record.in_map) {
                self.maps.delete_service(*id)?;
            }
        }
        for &(key, _) in &foreign.slots {
            let record = self.written.records.get(&key.service);
            let ours = record.is_some_and(|record| record.has_entry(key))
                || self.written.leaving_slots.contains_key(&key);
            if !ours {
                self.maps.delete_slot(key)?;
            }
        }
        for (key, _) in &foreign.sources {
            let id = ServiceId::from_be_bytes(key.service);
            let record = self.written.records.get(&id);
            let ours = record.is_some_and(|record| record.sources.contains(key));
            if !ours && !self.written.clients.contains(key) {
                self.maps.delete_source(*key)?;
            }
        }
        for (id, _) in &foreign.backends {
            if !self.written.backends.has(*id) {
                self.maps.delete_backend(*id)?;
            }
        }
        Ok(())
    }
}

impl<K, V> Difference<K, V> {
    fn drift(&self, map: Map) -> Drift {
        Drift {
            map,
            missing: self.missing.len(),
            wrong: self.wrong.len(),
            foreign: self.foreign.len(),
        }
    }
}

/// Compares what was found with what is expected. What is tolerated may be there, but has not to be.
fn compare<K: Copy + Eq + Hash, V: PartialEq>(
    found: Vec<(K, V)>,
    expected: impl Iterator<Item = (K, V)>,
    tolerated: impl Fn(&K) -> bool,
) -> Difference<K, V> {
    let mut found: HashMap<K, V> = found.into_iter().collect();
    let mut difference = Difference {
        missing: Vec::new(),
        wrong: Vec::new(),
        foreign: Vec::new(),
    };
    for (key, value) in expected {
        match found.remove(&key) {
            None => difference.missing.push((key, value)),
            Some(other) if other != value => difference.wrong.push((key, value)),
            Some(_) => {}
        }
    }
    found.retain(|key, _| !tolerated(key));
    difference.foreign = found.into_iter().collect();
    difference
}
