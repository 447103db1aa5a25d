//! Endpoints that have left a slice stay: all of one that was emptied, or those that left others behind.
//!
//! The first is what is permitted for `default/kubernetes`, made a rule for everybody. The second is an agent that adds what
//! a slice lists and never takes away.

use std::collections::HashMap;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Endpoint, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// Which endpoints stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Those of a slice that is emptied.
    Emptied,
    /// Those that leave a slice in which others stay, and to which nobody comes.
    Left,
}

/// A planner that is not told what has left.
#[derive(Debug)]
pub struct EndpointsKept {
    planner: Planner,
    kept: Kept,
    /// What each slice is told to be.
    told: HashMap<ObjectName, Slice>,
}

impl EndpointsKept {
    /// Around the production agent's.
    pub fn new(planner: Planner, kept: Kept) -> Self {
        Self {
            planner,
            kept,
            told: HashMap::new(),
        }
    }

    fn told(&mut self, mut slice: Slice) -> Slice {
        if let Some(before) = self.told.get(&slice.name) {
            let is_listed =
                |all: &[Endpoint], one: &Endpoint| all.iter().any(|other| other.address == one.address);
            let only_left = slice
                .endpoints
                .iter()
                .all(|one| is_listed(&before.endpoints, one));
            let left: Vec<_> = before
                .endpoints
                .iter()
                .filter(|one| !is_listed(&slice.endpoints, one))
                .cloned()
                .collect();
            match self.kept {
                Kept::Emptied if slice.endpoints.is_empty() => {
                    slice.endpoints.clone_from(&before.endpoints);
                    slice.ports.clone_from(&before.ports);
                }
                Kept::Left if !slice.endpoints.is_empty() && only_left => slice.endpoints.extend(left),
                Kept::Emptied | Kept::Left => {}
            }
        }
        self.told.insert(slice.name.clone(), slice.clone());
        slice
    }
}

impl DesiredState for EndpointsKept {
    fn apply(&mut self, event: Event) -> Dirty {
        let event = match event {
            Event::SliceApplied(slice) => Event::SliceApplied(self.told(slice)),
            Event::SliceDeleted(name) => {
                self.told.remove(&name);
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
