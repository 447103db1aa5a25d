//! A slice that was emptied stays empty.
//!
//! The bug of an agent that releases a backend's last use, and later takes the same backend for an existing one: the
//! Service stays refused until the agent is restarted, or the slice is deleted. For all Services, or for
//! `default/kubernetes` alone, as if its endpoints were stored separately.

use std::collections::HashMap;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

use crate::is_kubernetes;

/// A planner that does not get endpoints that return.
#[derive(Debug, Default)]
pub struct RefillIgnored {
    planner: Planner,
    /// Whether only slices of `default/kubernetes` are affected.
    of_kubernetes: bool,
    /// Slices that had endpoints, and whether they were emptied since.
    seen: HashMap<ObjectName, bool>,
}

impl RefillIgnored {
    /// Wraps the production agent's planner, for all Services.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }

    /// Wraps it for `default/kubernetes` alone.
    pub fn of_kubernetes(planner: Planner) -> Self {
        Self {
            of_kubernetes: true,
            ..Self::new(planner)
        }
    }

    fn meets(&self, slice: &Slice) -> bool {
        !self.of_kubernetes || slice.owner().is_some_and(|owner| is_kubernetes(&owner))
    }

    fn without_refills(&mut self, mut slice: Slice) -> Slice {
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
            Event::SliceApplied(slice) if self.meets(&slice) => {
                Event::SliceApplied(self.without_refills(slice))
            }
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
