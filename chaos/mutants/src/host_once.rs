//! The node's addresses are those that it had when the agent started.
//!
//! What an agent does that reads them once: node ports do not answer at an address that came later, and go on at one that the
//! node has lost.

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that learns the node's addresses at its start only.
#[derive(Debug, Default)]
pub struct HostOnce {
    planner: Planner,
    addresses: Option<BTreeSet<IpAddr>>,
}

impl HostOnce {
    /// Around the production agent's.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            addresses: None,
        }
    }
}

impl DesiredState for HostOnce {
    fn apply(&mut self, mut event: Event) -> Dirty {
        if let Event::Host(host) = &mut event {
            let first = self.addresses.get_or_insert_with(|| host.addresses.clone());
            host.addresses.clone_from(first);
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
