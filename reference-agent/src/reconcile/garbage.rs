//! Deletes unreferenced entries after a barrier: services without frontends, slots that are not current, ranges that no
//! frontend uses, and unused backends. Their numbers are free after that.

use std::time::{Duration, Instant};

use super::shadow::Shadow;
use crate::maps::{LbMaps, MapError};

/// How many entries may wait for a barrier while many Services are written. It bounds what the maps hold twice.
pub(super) const BATCH: usize = 4096;

/// How long unreferenced entries wait, so that many changes in a row share one barrier, which takes the kernel some 10 ms;
/// less than [`RETRY_FIRST`](super::RETRY_FIRST).
pub const COLLECT_AFTER: Duration = Duration::from_millis(20);

/// When to collect.
#[derive(Debug, Default)]
pub(super) struct Collection {
    at: Option<Instant>,
}

impl Collection {
    /// When entries have waited long enough.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// Collects if many entries wait, if one has waited long enough, or if an attempt has failed, now (`errors`) or
    /// before.
    pub(super) fn collect_if_due<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        now: Instant,
        has_failed: bool,
        errors: &mut Vec<MapError>,
    ) {
        if !shadow.has_to_delete() {
            self.at = None;
            return;
        }
        let has_failed = has_failed || !errors.is_empty();
        if has_failed || shadow.to_delete() >= BATCH || self.at.is_some_and(|at| at <= now) {
            self.at = None;
            errors.extend(collect(shadow));
        } else {
            self.at.get_or_insert(now + COLLECT_AFTER);
        }
    }
}

/// Deletes all unreferenced entries.
pub(super) fn collect<M: LbMaps>(shadow: &mut Shadow<M>) -> Vec<MapError> {
    if !shadow.has_to_delete() {
        return Vec::new();
    }
    shadow.release_unreferenced();
    let mut errors = Vec::new();
    let mut removable = shadow.removable();
    removable.retain(|&id| match shadow.unkeep(id) {
        Ok(()) => true,
        Err(error) => {
            errors.push(error);
            false
        }
    });
    for &id in &removable {
        shadow.empty_number(id);
    }
    if let Err(error) = shadow.barrier() {
        errors.push(error);
        return errors;
    }
    for &id in &removable {
        errors.extend(shadow.delete_service(id).err());
    }
    shadow.delete_slots(&mut errors);
    shadow.delete_sources(&mut errors);
    shadow.delete_idle_backends(&mut errors);
    for id in removable {
        shadow.free_number(id);
    }
    errors
}
