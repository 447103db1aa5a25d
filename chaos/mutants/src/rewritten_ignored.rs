//! A slice under another name is none, once a Service has lost one.
//!
//! What an agent does that keeps the names of a Service's slices in a table of its own and forgets to add to it: the
//! Service stays refused until the agent is started again, or the slice comes back under its old name.

use std::collections::HashSet;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// A planner that is not told of slices with new names.
#[derive(Debug, Default)]
pub struct RewrittenIgnored {
    planner: Planner,
    /// Names of slices that it was told of, and of the Services that had them.
    known: HashSet<(ObjectName, ObjectName)>,
    /// Services that have lost one.
    bereft: HashSet<ObjectName>,
}

impl RewrittenIgnored {
    /// Around the production agent's.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }

    /// Whether the planner is told.
    fn is_told(&mut self, event: &Event) -> bool {
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
        if self.is_told(&event) {
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
