//! The agent's own way to its API servers: the last backends of a service port that has none.

use lb_abi::ServiceId;

use super::{Reconciler, record::Kept};
use crate::maps::{LbMaps, MapError};

impl<M: LbMaps> Reconciler<M> {
    /// Switches a number to no slots. What it had is kept: KEPT says so before the switch, so that the agent's own
    /// sockets never meet neither. Where KEPT can't be written, everybody else is told the truth all the same, and
    /// the slots wait for it.
    pub(super) fn stage_empty(&mut self, id: ServiceId, members: bool) -> Result<(), MapError> {
        if let Some(last) = self.last(id) {
            let older = self
                .written
                .records
                .get(&id)
                .and_then(|record| record.kept.as_ref());
            // One of an older generation is still there, because it could not be removed: it must not stay.
            let required = older.is_some_and(|kept| kept.generation != last.generation && kept.in_map);
            let done = older.is_some_and(|kept| kept.generation == last.generation && kept.in_map);
            let result = if done { Ok(()) } else { self.put_kept(id, &last) };
            let in_map = result.is_ok();
            if required {
                result?;
            }
            if let Some(record) = self.written.records.get_mut(&id) {
                let older = record.kept.take_if(|kept| kept.generation != last.generation);
                if let Some(older) = older {
                    self.written.leaving_slots.extend(older.entries(id));
                }
                record.kept = Some(Kept { in_map, ..last });
            }
        }
        self.stage(id, &[], members)
    }

    /// The same under a new number, for a set whose frontends are no longer all its own.
    pub(super) fn build_kept(&mut self, of: ServiceId, members: bool) -> Result<ServiceId, MapError> {
        let record = self.written.records.get(&of);
        let last = record.and_then(|record| match &record.kept {
            _ if record.intact && !record.slots.is_empty() => Some(record.slots.clone()),
            Some(kept) if kept.sound => Some(kept.slots.clone()),
            _ => None,
        });
        let Some(last) = last else {
            return self.build_of(&[], members);
        };
        let id = self.build_of(&last, false)?;
        self.stage_empty(id, members).inspect_err(|_| {
            self.written.retired.insert(id);
        })?;
        Ok(id)
    }

    /// KEPT says what is kept of a number.
    pub(super) fn keep(&mut self, id: ServiceId) -> Result<(), MapError> {
        let record = self.written.records.get(&id);
        let Some(kept) = record.and_then(|record| record.kept.as_ref()) else {
            return Ok(());
        };
        if !kept.sound {
            return self.unkeep(id);
        }
        if kept.in_map {
            return Ok(());
        }
        let again = Kept {
            slots: Box::default(),
            ..*kept
        };
        self.put_kept(id, &again)?;
        if let Some(kept) = self
            .written
            .records
            .get_mut(&id)
            .and_then(|record| record.kept.as_mut())
        {
            kept.in_map = true;
        }
        Ok(())
    }

    /// Nothing is kept of a number any more.
    pub(super) fn unkeep(&mut self, id: ServiceId) -> Result<(), MapError> {
        let Some(record) = self.written.records.get_mut(&id) else {
            return Ok(());
        };
        let Some(kept) = &record.kept else {
            return Ok(());
        };
        if kept.in_map {
            self.writes += 1;
            self.maps.delete_kept(id)?;
            self.written.kept_freed = true;
        }
        self.written.leaving_slots.extend(record.take_kept(id));
        Ok(())
    }

    /// What is current of a number, if the agent can keep to it.
    fn last(&self, id: ServiceId) -> Option<Kept> {
        let record = self.written.records.get(&id)?;
        let usable = record.intact && !record.slots.is_empty();
        usable.then(|| Kept {
            generation: record.generation,
            count: record.value().slots,
            slots: Box::default(),
            in_map: false,
            sound: true,
        })
    }

    fn put_kept(&mut self, id: ServiceId, kept: &Kept) -> Result<(), MapError> {
        if self.written.kept_freed {
            self.barrier()?;
        }
        self.writes += 1;
        self.maps.put_kept(id, kept.value())?;
        let record = self.written.records.get(&id);
        let replaced = record
            .and_then(|record| record.kept.as_ref())
            .is_some_and(|before| before.in_map);
        self.written.kept_freed |= replaced;
        Ok(())
    }
}
