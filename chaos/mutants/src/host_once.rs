//! The agent only uses the node's addresses from its start.
//!
//! The bug of an agent that reads them once: node ports do not answer at new addresses, and still answer at addresses
//! that the node has lost.

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that only gets the node's addresses at its start.
#[derive(Debug, Default)]
pub struct HostOnce {
    planner: Planner,
    addresses: Option<BTreeSet<IpAddr>>,
}

impl HostOnce {
    /// Wraps the production agent's planner.
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
