//! What an agent does when it has lost a watch: it forgets all Services, or, from then on, misses what leaves a slice.
//!
//! The second is what a list must make good: no event says what was removed while there was no watch
//! (cilium/cilium#48050).

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lb_loader::{LoaderError, empty_map};
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// Where the agent pins the map of frontends, below its bpffs.
const FRONTENDS: &str = "plumbline/v1/maps/FRONTENDS";

/// Empties the map of frontends that is pinned below a bpffs.
///
/// # Errors
/// The map is not pinned there, or the kernel returns an error.
pub fn empty_frontends(bpffs: &Path) -> Result<(), LoaderError> {
    empty_map(&bpffs.join(FRONTENDS))
}

/// A planner that, once a watch was lost, adds endpoints of slices and removes none.
#[derive(Debug)]
pub struct RemovalsLost {
    planner: Planner,
    lost: Arc<AtomicBool>,
    /// The slices as the planner got them.
    passed: HashMap<ObjectName, Slice>,
}

impl RemovalsLost {
    /// Wraps the production agent's planner. `lost` says whether a watch was.
    pub fn new(planner: Planner, lost: Arc<AtomicBool>) -> Self {
        Self {
            planner,
            lost,
            passed: HashMap::new(),
        }
    }

    fn with_former(&mut self, mut slice: Slice) -> Slice {
        if let Some(before) = self.passed.get(&slice.name)
            && self.lost.load(Ordering::Relaxed)
        {
            let is_new = |one: &&_| !slice.endpoints.contains(one);
            let gone: Vec<_> = before.endpoints.iter().filter(is_new).cloned().collect();
            slice.endpoints.extend(gone);
        }
        self.passed.insert(slice.name.clone(), slice.clone());
        slice
    }
}

impl DesiredState for RemovalsLost {
    fn apply(&mut self, event: Event) -> Dirty {
        let event = match event {
            Event::SliceApplied(slice) => Event::SliceApplied(self.with_former(slice)),
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
