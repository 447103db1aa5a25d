//! Session affinity is misread: ignored, without an end, or stronger than the conditions of endpoints.
//!
//! The last is the bug of an agent that lets clients stay with a backend for as long as it finds it in its own tables.

use std::collections::{HashMap, HashSet};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// The API's longest timeout.
const LONGEST_SECONDS: u32 = 86_400;

/// What is misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityMisread {
    /// No Service has affinity.
    Ignored,
    /// Each timeout is the longest.
    Endless,
    /// Endpoints of a Service with affinity stay ready, whatever becomes of them in its slices.
    Loyal,
}

/// A planner that misreads session affinity.
#[derive(Debug)]
pub struct MisreadsAffinity {
    planner: Planner,
    misread: AffinityMisread,
    /// Services with affinity.
    services: HashSet<ObjectName>,
    /// Their slices, as the planner got them.
    passed: HashMap<ObjectName, Slice>,
}

impl MisreadsAffinity {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, misread: AffinityMisread) -> Self {
        Self {
            planner,
            misread,
            services: HashSet::new(),
            passed: HashMap::new(),
        }
    }

    fn with_former(&mut self, slice: &mut Slice) {
        if !slice.owner().is_some_and(|owner| self.services.contains(&owner)) {
            return;
        }
        let former = self
            .passed
            .get(&slice.name)
            .into_iter()
            .flat_map(|slice| &slice.endpoints);
        for endpoint in former {
            let address = endpoint.address;
            slice.endpoints.retain(|other| other.address != address);
            slice.endpoints.push(endpoint.clone());
        }
        self.passed.insert(slice.name.clone(), slice.clone());
    }
}

impl DesiredState for MisreadsAffinity {
    fn apply(&mut self, mut event: Event) -> Dirty {
        match (&mut event, self.misread) {
            (Event::ServiceApplied(service), AffinityMisread::Ignored) => service.affinity_seconds = 0,
            (Event::ServiceApplied(service), AffinityMisread::Endless) if service.affinity_seconds > 0 => {
                service.affinity_seconds = LONGEST_SECONDS;
            }
            (Event::ServiceApplied(service), AffinityMisread::Loyal) if service.affinity_seconds > 0 => {
                self.services.insert(service.name.clone());
            }
            (Event::SliceApplied(slice), AffinityMisread::Loyal) => self.with_former(slice),
            (Event::SliceDeleted(name), _) => {
                self.passed.remove(name);
            }
            _ => {}
        }
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
