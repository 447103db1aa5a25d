//! A slice that was emptied stays empty.
//!
//! What an agent does that releases a backend's last use, and takes the same backend afterwards for one that it already
//! has: the Service stays refused until the agent is started again, or the slice is deleted. Of all Services, or of
//! `default/kubernetes` alone, as where its endpoints are kept in a way of their own.

use std::collections::HashMap;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

use crate::is_kubernetes;

/// A planner that is not told of endpoints that come back.
#[derive(Debug, Default)]
pub struct RefillIgnored {
    planner: Planner,
    /// Only slices of `default/kubernetes` are met.
    of_kubernetes: bool,
    /// Slices that had endpoints, and whether they were emptied since.
    seen: HashMap<ObjectName, bool>,
}

impl RefillIgnored {
    /// Around the production agent's.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }

    /// The same, of `default/kubernetes` alone.
    pub fn of_kubernetes(planner: Planner) -> Self {
        Self {
            of_kubernetes: true,
            ..Self::new(planner)
        }
    }

    fn meets(&self, slice: &Slice) -> bool {
        !self.of_kubernetes || slice.owner().is_some_and(|owner| is_kubernetes(&owner))
    }

    fn told(&mut self, mut slice: Slice) -> Slice {
        if let Some(emptied) = self.seen.get_mut(&slice.name) {
            *emptied |= slice.endpoints.is_empty();
            if *emptied {
                slice.endpoints.clear();
            }
        } else if !slice.endpoints.is_empty() {
            self.seen.insert(slice.name.clone(), false);
        }
        slice
    }
}

impl DesiredState for RefillIgnored {
    fn apply(&mut self, event: Event) -> Dirty {
        let event = match event {
            Event::SliceApplied(slice) if self.meets(&slice) => Event::SliceApplied(self.told(slice)),
            Event::SliceDeleted(name) => {
                self.seen.remove(&name);
                Event::SliceDeleted(name)
            }
            other => other,
        };
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
