//! The addresses of load balancers and external IPs are taken for addresses of Services alone.
//!
//! What an agent does that treats all of a Service's addresses as cluster IPs, which no machine has. A proxy or a node that has
//! one is dropped as a forged source, and its other ports are refused.

use lb_abi::address_flags::{NODE, VIP};
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that knows no addresses of Services but those of Services alone.
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
