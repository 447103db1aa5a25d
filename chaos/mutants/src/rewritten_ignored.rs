//! Once a Service has lost a slice, slices with other names are ignored.
//!
//! The bug of an agent that keeps the names of a Service's slices in a separate table and does not add to it: the
//! Service stays refused until the agent is restarted, or the slice returns under its old name.

use std::collections::HashSet;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// A planner that does not get slices with new names.
#[derive(Debug, Default)]
pub struct RewrittenIgnored {
    planner: Planner,
    /// Names of known slices, and of their Services.
    known: HashSet<(ObjectName, ObjectName)>,
    /// Services that have lost a slice.
    bereft: HashSet<ObjectName>,
}

impl RewrittenIgnored {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }

    /// Whether the planner gets the event.
    fn is_passed_on(&mut self, event: &Event) -> bool {
        match event {
            Event::SliceApplied(slice) => {
                let Some(owner) = slice.owner() else {
                    return true;
                };
                let key = (slice.name.clone(), owner);
                if self.bereft.contains(&key.1) && !self.known.contains(&key) {
                    return false;
                }
                self.known.insert(key);
            }
            Event::SliceDeleted(name) => {
                let owners = self.known.iter().filter(|(slice, _)| slice == name);
                self.bereft.extend(owners.map(|(_, owner)| owner.clone()));
            }
            Event::ServiceDeleted(service) => _ = self.bereft.remove(service),
            Event::ServiceApplied(_)
            | Event::NodeApplied(_)
            | Event::NodeDeleted(_)
            | Event::ServiceCidrApplied(_)
            | Event::ServiceCidrDeleted(_)
            | Event::ServiceRanges(_)
            | Event::Host(_)
            | Event::ApiServers(_)
            | Event::Synced(_) => {}
        }
        true
    }
}

impl DesiredState for RewrittenIgnored {
    fn apply(&mut self, event: Event) -> Dirty {
        if self.is_passed_on(&event) {
            self.planner.apply(event)
        } else {
            Dirty::new()
        }
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
