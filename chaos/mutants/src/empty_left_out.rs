//! A Service without endpoints is not in the maps, so nothing refuses connections to it.
//!
//! Packets to it follow the node's routes: mostly they are lost, and clients wait. (An agent that refuses all addresses
//! of the Service ranges would hide the bug.)

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

use crate::ranges_unknown::RangesUnknown;

/// A planner that omits ports without backends.
#[derive(Debug, Default)]
pub struct EmptyLeftOut(RangesUnknown);

impl EmptyLeftOut {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner) -> Self {
        Self(RangesUnknown(planner))
    }
}

impl DesiredState for EmptyLeftOut {
    fn apply(&mut self, event: Event) -> Dirty {
        self.0.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.0.plan_service(service);
        plan.ports.retain(|_, port| !port.cluster.is_empty());
        if plan.ports.is_empty() {
            plan.addresses.clear();
        }
        plan
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}
