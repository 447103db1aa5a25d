//! The health check node port counts endpoints that are only terminating.
//!
//! The bug of an agent that answers health checks by the backends that it has, with those that serve only because none
//! is ready: load balancers go on sending to a node that drains.

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that counts a node's backends for its health checks.
#[derive(Debug, Default)]
pub struct TerminatingHealthy(pub Planner);

impl DesiredState for TerminatingHealthy {
    fn apply(&mut self, event: Event) -> Dirty {
        self.0.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.0.plan_service(service);
        let backends = plan.ports.values().map(|port| port.local.len()).max();
        if let Some(check) = &mut plan.health_check {
            check.local_endpoints = backends.unwrap_or_default();
        }
        plan
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}
