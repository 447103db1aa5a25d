//! Services get what they did not ask for: a traffic policy, or session affinity.
//!
//! The bugs of agents with another default than the API's.

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{ServicePlan, Set},
};

/// What.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// The policy `Local`, at node ports.
    Local,
    /// Session affinity, for as long as the API's default.
    Affinity,
}

/// A planner with such a default.
#[derive(Debug)]
pub struct WithUnasked {
    planner: Planner,
    unasked: Unasked,
}

/// Three hours (`DefaultClientIPServiceAffinitySeconds`).
const SECONDS: u32 = 10_800;

impl WithUnasked {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, unasked: Unasked) -> Self {
        Self { planner, unasked }
    }
}

impl DesiredState for WithUnasked {
    fn apply(&mut self, event: Event) -> Dirty {
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        if service == ObjectId::NODE {
            return plan;
        }
        for port in plan.ports.values_mut() {
            match self.unasked {
                Unasked::Affinity => port.affinity_seconds = SECONDS,
                Unasked::Local => {
                    let all = port.frontends.iter_mut();
                    for (_, node_port) in all.filter(|(frontend, _)| frontend.address.is_unspecified()) {
                        node_port.internal = Set::Local;
                        node_port.external = Set::Local;
                    }
                }
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
