//! Endpoints that have left a slice stay: all of an emptied slice, or those that left while others stay.
//!
//! The first applies to every Service what is permitted for `default/kubernetes` alone. The second is the bug of an
//! agent that adds the endpoints of a slice and never removes any.

use std::collections::HashMap;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Endpoint, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// Which endpoints stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptEndpoints {
    /// Those of a slice that becomes empty.
    Emptied,
    /// Those that leave a slice in which others stay and none is added.
    Left,
}

/// A planner that does not get the removal of endpoints.
#[derive(Debug)]
pub struct EndpointsKept {
    planner: Planner,
    kept: KeptEndpoints,
    /// The slices as the planner got them.
    passed: HashMap<ObjectName, Slice>,
}

impl EndpointsKept {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, kept: KeptEndpoints) -> Self {
        Self {
            planner,
            kept,
            passed: HashMap::new(),
        }
    }

    fn without_removals(&mut self, mut slice: Slice) -> Slice {
        if let Some(before) = self.passed.get(&slice.name) {
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
                KeptEndpoints::Emptied if slice.endpoints.is_empty() => {
                    slice.endpoints.clone_from(&before.endpoints);
                    slice.ports.clone_from(&before.ports);
                }
                KeptEndpoints::Left if !slice.endpoints.is_empty() && only_left => {
                    slice.endpoints.extend(left);
                }
                KeptEndpoints::Emptied | KeptEndpoints::Left => {}
            }
        }
        self.passed.insert(slice.name.clone(), slice.clone());
        slice
    }
}

impl DesiredState for EndpointsKept {
    fn apply(&mut self, event: Event) -> Dirty {
        let event = match event {
            Event::SliceApplied(slice) => Event::SliceApplied(self.without_removals(slice)),
            Event::SliceDeleted(name) => {
                self.passed.remove(&name);
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
