//! Removes what nothing leads to any more: frontends first, then their addresses, then a barrier, then the rest.

use super::{Reconciler, written::services_of};
use crate::maps::{LbMaps, MapError};

/// So many entries may wait for a barrier while a long list of Services is written: bounds what the maps hold
/// twice. A barrier takes tens of milliseconds.
pub(super) const BATCH: usize = 4096;

impl<M: LbMaps> Reconciler<M> {
    /// Deletes frontends that nobody wants. One that somebody wants and could not get yet stays as it is.
    pub(super) fn delete_frontends(&mut self) -> Vec<MapError> {
        let mut errors = Vec::new();
        for key in std::mem::take(&mut self.written.misplaced) {
            let Some(found) = self.written.frontends.get(&key) else {
                continue;
            };
            if let Some(&at) = self.written.wanted.get(&key) {
                let is_its = self
                    .written
                    .id(at)
                    .is_some_and(|id| services_of(found).iter().eq([&id]));
                if !is_its {
                    self.written.misplaced.insert(key);
                }
                continue;
            }
            match self.maps.delete_frontend(key) {
                Ok(()) => self.written.removed(key),
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
                0 => self.maps.delete_address(address),
                flags => self.put_address(address, flags),
            };
            match result {
                Ok(()) if wanted == 0 => self.written.addresses.deleted(address),
                Ok(()) => {}
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// Waits for running programs, then deletes services without frontends, slots that are not current and
    /// backends that no slot carries; their numbers are free after that.
    pub(super) fn collect(&mut self) -> Vec<MapError> {
        let retired = self.written.retired.iter().copied();
        let unnamed: Vec<_> = retired
            .filter(|id| self.written.records[id].frontends.is_empty())
            .collect();
        for id in &unnamed {
            if let Some(record) = self.written.records.get_mut(id) {
                self.written.leaving_slots.extend(record.slots.drain(..));
            }
        }
        let idle = self.written.backends.idle();
        if unnamed.is_empty() && idle.is_empty() && self.written.leaving_slots.is_empty() {
            return Vec::new();
        }
        if let Err(error) = self.barrier() {
            return vec![error];
        }
        let mut errors = Vec::new();
        for id in &unnamed {
            let Some(record) = self.written.records.get_mut(id) else {
                continue;
            };
            if record.in_map {
                match self.maps.delete_service(*id) {
                    Ok(()) => record.in_map = false,
                    Err(error) => errors.push(error),
                }
            }
        }
        self.written
            .leaving_slots
            .retain(|&key, &mut backend| match self.maps.delete_slot(key) {
                Ok(()) => {
                    self.written.backends.released(backend);
                    false
                }
                Err(error) => {
                    errors.push(error);
                    true
                }
            });
        for id in self.written.backends.idle() {
            match self.maps.delete_backend(id) {
                Ok(()) => self.written.backends.deleted(id),
                Err(error) => errors.push(error),
            }
        }
        for id in unnamed {
            if !self.written.records[&id].in_map && !self.written.has_leaving_slots(id, 0, u32::MAX) {
                self.written.records.remove(&id);
                self.written.retired.remove(&id);
                if self.written.ids.contains(id) {
                    self.written.ids.free(id);
                }
            }
        }
        errors
    }
}
