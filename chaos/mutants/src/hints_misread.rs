//! Hints of endpoints are ignored, count where they are incomplete, or count though their endpoints are not ready.
//!
//! Bugs of agents that compute which endpoints a zone has before they look at conditions (kubernetes#106507), or that
//! leave out every endpoint without a hint once they know their zone.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model, Slice},
    names::{NameSet, ObjectId, ObjectName},
    plan::ServicePlan,
};

/// What is misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misread {
    /// There are no hints.
    Ignored,
    /// An endpoint without a hint is for another zone.
    PartialCounted,
    /// Hints of unready endpoints count.
    UnreadyCounted,
}

/// A planner that misreads hints.
#[derive(Debug)]
pub struct HintsMisread {
    planner: Planner,
    misread: Misread,
    /// Endpoints of each slice that the planner gets as ready ones, and which are not.
    unready: HashMap<ObjectName, BTreeSet<IpAddr>>,
}

impl HintsMisread {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, misread: Misread) -> Self {
        Self {
            planner,
            misread,
            unready: HashMap::new(),
        }
    }

    fn misread(&mut self, slice: &mut Slice) {
        let mut unready = BTreeSet::new();
        for endpoint in &mut slice.endpoints {
            match self.misread {
                Misread::Ignored => {
                    endpoint.for_zones = NameSet::default();
                    endpoint.for_nodes = NameSet::default();
                }
                Misread::PartialCounted if endpoint.for_zones.is_empty() => {
                    endpoint.for_zones = ["another zone"].into_iter().collect();
                }
                Misread::UnreadyCounted if !endpoint.ready && !endpoint.for_zones.is_empty() => {
                    unready.insert(endpoint.address);
                    endpoint.ready = true;
                }
                Misread::PartialCounted | Misread::UnreadyCounted => {}
            }
        }
        self.unready.insert(slice.name.clone(), unready);
    }
}

impl DesiredState for HintsMisread {
    fn apply(&mut self, mut event: Event) -> Dirty {
        match &mut event {
            Event::SliceApplied(slice) => self.misread(slice),
            Event::SliceDeleted(name) => _ = self.unready.remove(name),
            _ => {}
        }
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        let slices = self.planner.model().slices_of(service).iter();
        let unready: BTreeSet<IpAddr> = slices
            .filter_map(|slice| self.unready.get(&slice.name))
            .flatten()
            .copied()
            .collect();
        for port in plan.ports.values_mut() {
            for set in [&mut port.cluster, &mut port.local, &mut port.serving] {
                set.retain(|backend| !unready.contains(&backend.address.address));
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
