//! Where Services have more endpoints than the maps hold, new ones displace those that came first.
//!
//! The bug of a table that forgets what was there first, or was used least: Services fail that nothing has changed.

use std::collections::BTreeSet;

use lb_abi::capacity;
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that leaves out the first Services, as long as there are too many endpoints.
#[derive(Debug)]
pub struct OldestDisplaced {
    planner: Planner,
    /// The most endpoints of all Services.
    most: usize,
    displaced: BTreeSet<ObjectId>,
}

impl OldestDisplaced {
    /// Wraps the production agent's planner, of maps with its capacity.
    pub fn new(planner: Planner) -> Self {
        Self::holding(planner, capacity::BACKENDS as usize - 1)
    }

    /// Wraps it, of maps that hold so many endpoints.
    pub fn holding(planner: Planner, most: usize) -> Self {
        Self {
            planner,
            most,
            displaced: BTreeSet::new(),
        }
    }

    /// The first Services, without which the others have room.
    fn too_many(&self) -> BTreeSet<ObjectId> {
        let model = self.planner.model();
        let endpoints = |id: ObjectId| -> usize {
            let slices = model.slices_of(id).iter();
            slices
                .map(|slice| slice.endpoints.len() * slice.ports.len())
                .sum()
        };
        // Their numbers are in the order in which the agent met them.
        let services: BTreeSet<ObjectId> = model.services().map(|(id, _)| id).collect();
        let mut left: usize = services.iter().map(|id| endpoints(*id)).sum();
        let is_displaced = |id: &ObjectId| {
            let is_full = left > self.most;
            if is_full {
                left -= endpoints(*id);
            }
            is_full
        };
        services.into_iter().take_while(is_displaced).collect()
    }
}

impl DesiredState for OldestDisplaced {
    fn apply(&mut self, event: Event) -> Dirty {
        let mut dirty = self.planner.apply(event);
        let displaced = self.too_many();
        dirty.extend(displaced.symmetric_difference(&self.displaced));
        self.displaced = displaced;
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        if self.displaced.contains(&service) {
            return ServicePlan::default();
        }
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
