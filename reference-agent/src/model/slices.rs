//! EndpointSlices by the Service that they name.

use std::collections::BTreeSet;

use super::objects::Slice;
use crate::{
    hash::HashMap,
    names::{ObjectId, ObjectName},
};

/// All slices that name a Service.
#[derive(Debug, Default)]
pub(super) struct Slices {
    /// Each Service's, sorted by name.
    of: HashMap<ObjectId, Vec<Slice>>,
    owners: HashMap<ObjectName, ObjectId>,
    /// How many slices of a Service have an endpoint with zone hints.
    zoned: HashMap<ObjectId, u32>,
}

impl Slices {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.owners.is_empty() && self.zoned.is_empty()
    }

    /// The slices of a Service, sorted by name.
    pub(super) fn of(&self, service: ObjectId) -> &[Slice] {
        self.of.get(&service).map_or(&[], Vec::as_slice)
    }

    /// The Service that a slice belongs to.
    pub(super) fn owner(&self, slice: &ObjectName) -> Option<ObjectId> {
        self.owners.get(slice).copied()
    }

    /// Services whose plans may depend on a zone.
    pub(super) fn zoned(&self) -> BTreeSet<ObjectId> {
        self.zoned.keys().copied().collect()
    }

    /// Puts a slice of a Service. The result: the slice before. It must not belong to another Service.
    pub(super) fn put(&mut self, owner: ObjectId, slice: Slice) -> Option<Slice> {
        let is_zoned = zoned(&slice);
        let slices = self.of.entry(owner).or_insert_with(|| Vec::with_capacity(1));
        let before = match slices.binary_search_by(|one| one.name.cmp(&slice.name)) {
            Ok(index) => Some(std::mem::replace(&mut slices[index], slice)),
            Err(index) => {
                self.owners.insert(slice.name.clone(), owner);
                slices.insert(index, slice);
                None
            }
        };
        if is_zoned {
            *self.zoned.entry(owner).or_default() += 1;
        }
        self.unzone(owner, before.as_ref());
        before
    }

    /// Deletes a slice.
    pub(super) fn remove(&mut self, name: &ObjectName) -> Option<(ObjectId, Slice)> {
        let owner = self.owners.remove(name)?;
        let slices = self.of.get_mut(&owner)?;
        let index = slices.binary_search_by(|one| one.name.cmp(name)).ok()?;
        let slice = slices.remove(index);
        if slices.is_empty() {
            self.of.remove(&owner);
        }
        self.unzone(owner, Some(&slice));
        Some((owner, slice))
    }

    fn unzone(&mut self, owner: ObjectId, slice: Option<&Slice>) {
        if slice.is_some_and(zoned)
            && let Some(count) = self.zoned.get_mut(&owner)
        {
            *count -= 1;
            if *count == 0 {
                self.zoned.remove(&owner);
            }
        }
    }
}

fn zoned(slice: &Slice) -> bool {
    slice
        .endpoints
        .iter()
        .any(|endpoint| !endpoint.for_zones.is_empty())
}
