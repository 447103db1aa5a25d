//! Deletes what nothing leads to any more, after a barrier: services without frontends, slots that are not current,
//! ranges that no frontend uses, and backends that are not needed. Their numbers are free after that.

use std::time::{Duration, Instant};

use super::shadow::Shadow;
use crate::maps::{LbMaps, MapError};

/// So many entries may wait for a barrier while a long list of Services is written: bounds what the maps hold
/// twice.
pub(super) const BATCH: usize = 4096;

/// For so long what nothing leads to any more may wait for others, so that many changes in a row share one barrier,
/// for which the kernel takes some 10 ms; less than [`RETRY_FIRST`](super::RETRY_FIRST).
pub const COLLECT_AFTER: Duration = Duration::from_millis(20);

/// When to collect.
#[derive(Debug, Default)]
pub(super) struct Collection {
    at: Option<Instant>,
}

impl Collection {
    /// When what waits has waited long enough.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// Collects, if much is waiting, something has waited long enough, or an attempt has failed: now, with `errors`,
    /// or earlier.
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

/// Deletes everything that nothing leads to any more.
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
