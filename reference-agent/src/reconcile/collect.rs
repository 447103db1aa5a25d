//! Removes what nothing leads to any more: frontends first, then their addresses, then a barrier, then the rest.

use std::time::{Duration, Instant};

use lb_abi::{BackendId, ServiceId, SlotKey, SourceKey};

use super::Reconciler;
use crate::maps::{LbMaps, MapError, Partial};

/// So many entries may wait for a barrier while a long list of Services is written: bounds what the maps hold
/// twice.
pub(super) const BATCH: usize = 4096;

/// For so long what nothing leads to any more may wait for others, so that many changes in a row share one barrier,
/// for which the kernel takes some 10 ms; less than [`RETRY_FIRST`](super::RETRY_FIRST).
pub const COLLECT_AFTER: Duration = Duration::from_millis(20);

impl<M: LbMaps> Reconciler<M> {
    /// Deletes frontends that nobody wants. One that somebody wants and could not get yet stays as it is.
    pub(super) fn delete_frontends(&mut self) -> Vec<MapError> {
        let mut errors = Vec::new();
        for key in std::mem::take(&mut self.written.misplaced) {
            if !self.written.frontends.contains_key(&key) || self.written.wanted.contains_key(&key) {
                continue;
            }
            self.writes += 1;
            match self.maps.delete_frontend(key) {
                Ok(()) => {
                    self.written.removed(key);
                    self.owners.deleted(key);
                }
                Err(error) => {
                    self.written.misplaced.insert(key);
                    errors.push(error);
                }
            }
        }
        errors
    }

    /// Deletes addresses that have no frontend any more, and takes flags away that nobody wants any more.
    pub(super) fn delete_addresses(&mut self) -> Vec<MapError> {
        let mut errors = Vec::new();
        for (address, wanted) in self.written.addresses.excess() {
            let result = match wanted {
                Some(flags) => self.put_address(address, flags),
                None => {
                    self.writes += 1;
                    self.maps.delete_address(address)
                }
            };
            match result {
                Ok(()) if wanted.is_none() => self.written.addresses.deleted(address),
                Ok(()) => {}
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// Collects, if it is time for it: where much is waiting, where something has waited long enough, or where an
    /// attempt has failed.
    pub(super) fn collect_if_due(&mut self, now: Instant, errors: &mut Vec<MapError>) {
        if !self.is_waiting() {
            self.collect_at = None;
            return;
        }
        // After a failure it is tried with everything else, or when the retry is due.
        let failed = !errors.is_empty() || self.retries.removal_failed();
        if failed || self.written.leaving() >= BATCH || self.collect_at.is_some_and(|at| at <= now) {
            self.collect_at = None;
            errors.extend(self.collect());
        } else {
            self.collect_at.get_or_insert(now + COLLECT_AFTER);
        }
    }

    /// Whether there is anything that may go.
    fn is_waiting(&self) -> bool {
        let written = &self.written;
        !written.leaving_slots.is_empty()
            || !written.leaving_sources.is_empty()
            || !written.unasked.is_empty()
            || !written.backends.idle().is_empty()
            || written.retired.iter().any(|&id| self.is_unnamed(id))
    }

    /// Whether no frontend names a number.
    fn is_unnamed(&self, id: ServiceId) -> bool {
        self.written
            .records
            .get(&id)
            .is_some_and(|record| record.frontends == 0)
    }

    /// Waits for running programs, then deletes services without frontends, slots that are not current, ranges that
    /// no frontend asks for and backends that nobody needs; their numbers are free after that.
    pub(super) fn collect(&mut self) -> Vec<MapError> {
        if !self.is_waiting() {
            return Vec::new();
        }
        self.written.release_unasked();
        let mut errors = Vec::new();
        let mut unnamed: Vec<ServiceId> = self
            .written
            .retired
            .iter()
            .copied()
            .filter(|&id| self.is_unnamed(id))
            .collect();
        unnamed.retain(|&id| match self.unkeep(id) {
            Ok(()) => true,
            Err(error) => {
                errors.push(error);
                false
            }
        });
        for &id in &unnamed {
            if let Some(record) = self.written.records.get_mut(&id) {
                self.written.leaving_slots.extend(record.take_current(id));
                self.written.leaving_sources.extend(&record.sources);
            }
        }
        if let Err(error) = self.barrier() {
            errors.push(error);
            return errors;
        }
        for &id in &unnamed {
            let Some(record) = self.written.records.get_mut(&id) else {
                continue;
            };
            if record.in_map {
                self.writes += 1;
                match self.maps.delete_service(id) {
                    Ok(()) => record.in_map = false,
                    Err(error) => errors.push(error),
                }
            }
        }
        self.delete_slots(&mut errors);
        self.delete_sources(&mut errors);
        self.delete_backends(&mut errors);
        for id in unnamed {
            let record = self.written.records.get(&id);
            let empty = record.is_some_and(|record| !record.in_map && record.sources.is_empty());
            if empty && !self.written.has_leaving_slots(id, 0, u32::MAX) {
                self.written.records.remove(&id);
                self.written.retired.remove(&id);
                if self.written.ids.contains(id) {
                    self.written.ids.free(id);
                }
            }
        }
        errors
    }

    fn delete_slots(&mut self, errors: &mut Vec<MapError>) {
        let keys: Vec<SlotKey> = self.written.leaving_slots.keys().copied().collect();
        self.writes += keys.len() as u64;
        let maps = &mut self.maps;
        for key in all_but_failed(&keys, errors, |keys| maps.delete_slots(keys)) {
            if let Some(backend) = self.written.leaving_slots.remove(&key) {
                self.written.slots -= 1;
                self.written.backends.released(backend);
            }
        }
    }

    fn delete_sources(&mut self, errors: &mut Vec<MapError>) {
        let keys: Vec<SourceKey> = self.written.leaving_sources.iter().copied().collect();
        for key in keys {
            self.writes += 1;
            match self.maps.delete_source(key) {
                Ok(()) => {
                    self.written.leaving_sources.remove(&key);
                    let id = ServiceId::from_be_bytes(key.service);
                    if let Some(record) = self.written.records.get_mut(&id) {
                        record.sources.remove(&key);
                    }
                    self.written.clients.remove(&key);
                }
                Err(error) => errors.push(error),
            }
        }
    }

    fn delete_backends(&mut self, errors: &mut Vec<MapError>) {
        let ids: Vec<BackendId> = self.written.backends.idle().iter().copied().collect();
        self.writes += ids.len() as u64;
        let maps = &mut self.maps;
        for id in all_but_failed(&ids, errors, |ids| maps.delete_backends(ids)) {
            self.written.backends.deleted(id);
        }
    }
}

/// Carries an operation out on all keys, passing over those that fail, and returns those that did not.
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
