//! Endpoints are stored by Service instead of by slice: each written slice replaces the endpoints of the others.
//!
//! A common bug of early implementations that moved from Endpoints, with one object for each Service, to
//! EndpointSlices.

use std::collections::HashMap;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// A planner that gets one slice of each Service: the one written last.
#[derive(Debug, Default)]
pub struct LastSliceWins {
    planner: Planner,
    /// Slice by Service.
    last: HashMap<ObjectName, ObjectName>,
}

impl LastSliceWins {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }
}

impl DesiredState for LastSliceWins {
    fn apply(&mut self, event: Event) -> Dirty {
        let mut dirty = Dirty::new();
        match &event {
            Event::SliceApplied(slice) => {
                self.last.retain(|_, last| *last != slice.name);
                let replaced = slice
                    .owner()
                    .and_then(|owner| self.last.insert(owner, slice.name.clone()));
                if let Some(replaced) = replaced {
                    dirty.extend(self.planner.apply(Event::SliceDeleted(replaced)));
                }
            }
            Event::SliceDeleted(name) => self.last.retain(|_, last| last != name),
            Event::ServiceApplied(_)
            | Event::ServiceDeleted(_)
            | Event::NodeApplied(_)
            | Event::NodeDeleted(_)
            | Event::ServiceCidrApplied(_)
            | Event::ServiceCidrDeleted(_)
            | Event::ServiceRanges(_)
            | Event::Host(_)
            | Event::ApiServers(_)
            | Event::Synced(_) => {}
        }
        dirty.extend(self.planner.apply(event));
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
