//! A slice that was emptied and filled again has its first endpoint twice.
//!
//! The bug of an agent that adds new endpoints to those that it has kept of deleted ones: the Service is served by the
//! right backends, but one of them gets twice its share.

use std::collections::{HashMap, HashSet};

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::Backend,
    model::{Dirty, Event, Model},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// A planner whose refilled Services have a backend twice.
#[derive(Debug, Default)]
pub struct RefillDoubled {
    planner: Planner,
    /// Slices that had endpoints, and whether they are empty now.
    seen: HashMap<ObjectName, bool>,
    /// Services whose slices were refilled.
    refilled: HashSet<ObjectName>,
}

impl RefillDoubled {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }
}

impl DesiredState for RefillDoubled {
    fn apply(&mut self, event: Event) -> Dirty {
        match &event {
            Event::SliceApplied(slice) => {
                let is_empty = slice.endpoints.is_empty();
                let was_emptied = self.seen.get(&slice.name).copied();
                if was_emptied.is_some() || !is_empty {
                    self.seen.insert(slice.name.clone(), is_empty);
                }
                if was_emptied == Some(true) && !is_empty {
                    self.refilled.extend(slice.owner());
                }
            }
            Event::SliceDeleted(name) => _ = self.seen.remove(name),
            Event::ServiceDeleted(name) => _ = self.refilled.remove(name),
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
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        let name = self.planner.model().name(service);
        if name.is_some_and(|name| self.refilled.contains(name)) {
            for port in plan.ports.values_mut() {
                // The sets have each backend once, so the duplicate has the other `local` flag.
                let first = port.cluster.first().copied();
                let double = first.map(|Backend { address, local }| Backend {
                    address,
                    local: !local,
                });
                port.cluster.extend(double);
                port.serving.extend(double);
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
