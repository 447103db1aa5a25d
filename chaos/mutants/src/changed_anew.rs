//! A Service of several ports that changes is removed first, and is added again with a later event.
//!
//! The bug of an agent that handles a change as a deletion and a creation: what the change does not name fails for a
//! moment, too.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model, Service},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// From the removal to the event that adds the Service again, at least.
const REMOVED: Duration = Duration::from_millis(200);

/// A planner that plans nothing for a Service that has just changed.
#[derive(Debug, Default)]
pub struct ChangedAnew {
    planner: Planner,
    known: HashMap<ObjectName, Service>,
    removed: HashMap<ObjectId, Instant>,
}

impl ChangedAnew {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }
}

impl DesiredState for ChangedAnew {
    fn apply(&mut self, event: Event) -> Dirty {
        let added = self.removed.extract_if(|_, since| since.elapsed() >= REMOVED);
        let added: Vec<ObjectId> = added.map(|(id, _)| id).collect();
        let changed = match &event {
            Event::ServiceApplied(service) => {
                let before = self.known.insert(service.name.clone(), service.clone());
                let is_other =
                    before.is_some_and(|before| before.ports != service.ports && service.ports.len() > 1);
                is_other.then(|| service.name.clone())
            }
            Event::ServiceDeleted(name) => {
                self.known.remove(name);
                None
            }
            _ => None,
        };
        let mut dirty = self.planner.apply(event);
        dirty.extend(added);
        if let Some(id) = changed.and_then(|name| self.planner.model().id(&name)) {
            self.removed.insert(id, Instant::now());
        }
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        if self.removed.contains_key(&service) {
            return ServicePlan::default();
        }
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
