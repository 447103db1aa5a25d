//! A start clears too much: a Service whose slices are empty, and every one whose name begins with that Service's.
//!
//! The family of incident 1 in restored state: the bug of an agent that, once both lists have synced, releases the
//! backends of an emptied Service, and finds the Service by a prefix. While it runs it makes no mistake, and any write
//! to the victim's slice heals it.

use std::collections::HashSet;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// A planner that loses backends at its start.
#[derive(Debug, Default)]
pub struct RestoredByPrefix {
    planner: Planner,
    /// Services that have lost their backends.
    forgotten: HashSet<ObjectName>,
}

impl RestoredByPrefix {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }

    /// Clears Services at the start.
    fn restore(&mut self) {
        let model = self.planner.model();
        let is_emptied = |id| {
            let slices = model.slices_of(id);
            !slices.is_empty() && slices.iter().all(|slice| slice.endpoints.is_empty())
        };
        let emptied: Vec<String> = model
            .services()
            .filter(|(id, _)| is_emptied(*id))
            .map(|(_, service)| service.name.to_string())
            .collect();
        let names = model.services().map(|(_, service)| &service.name);
        let taken = names.filter(|name| {
            let name = name.to_string();
            emptied.iter().any(|emptied| name.starts_with(emptied.as_str()))
        });
        self.forgotten = taken.cloned().collect();
    }
}

impl DesiredState for RestoredByPrefix {
    fn apply(&mut self, event: Event) -> Dirty {
        match &event {
            Event::SliceApplied(slice) => {
                if let Some(owner) = slice.owner() {
                    self.forgotten.remove(&owner);
                }
            }
            Event::ServiceDeleted(name) => _ = self.forgotten.remove(name),
            Event::SliceDeleted(_)
            | Event::ServiceApplied(_)
            | Event::NodeApplied(_)
            | Event::NodeDeleted(_)
            | Event::ServiceCidrApplied(_)
            | Event::ServiceCidrDeleted(_)
            | Event::ServiceRanges(_)
            | Event::Host(_)
            | Event::ApiServers(_)
            | Event::Synced(_) => {}
        }
        let was_synced = self.planner.model().synced();
        let dirty = self.planner.apply(event);
        // No map is written before.
        if !was_synced && self.planner.model().synced() {
            self.restore();
        }
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        let name = self.planner.model().name(service);
        if name.is_some_and(|name| self.forgotten.contains(name)) {
            for port in plan.ports.values_mut() {
                for set in [&mut port.cluster, &mut port.local, &mut port.serving] {
                    set.clear();
                }
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
