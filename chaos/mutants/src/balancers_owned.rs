//! Addresses of load balancers and external IPs are treated as addresses of Services alone.
//!
//! The bug of an agent that treats all addresses of a Service as cluster IPs, which no machine has. Packets from a
//! proxy or a node with such an address are dropped as forged, and its other ports are refused.

use lb_abi::address_flags::{NODE, VIP};
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that treats all addresses of Services as cluster IPs.
#[derive(Debug, Default)]
pub struct BalancersOwned(pub Planner);

impl DesiredState for BalancersOwned {
    fn apply(&mut self, event: Event) -> Dirty {
        self.0.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.0.plan_service(service);
        for flags in plan.addresses.values_mut().filter(|flags| **flags & NODE == 0) {
            *flags = VIP;
        }
        plan
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}
