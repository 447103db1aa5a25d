//! Removes what nothing leads to any more: frontends first, then a barrier, then the rest.

use super::Reconciler;
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
                if self.written.id(at) != Some(found.service) {
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
        if let Err(error) = self.maps.barrier() {
            return vec![error];
        }
        self.written.frontend_freed = false;
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
