//! The agent has no API endpoint of its own: its sockets see the same Services as all others, and it remembers nothing.
//!
//! The lock-out of incident 1. The agent correctly programs that the Service by which it reaches the API has no
//! endpoints, and is then refused there itself, so it does not get the next change. A restart does not help, because
//! the maps are pinned.

use std::collections::BTreeSet;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that does not get the agent's API addresses, and does not report the endpoints behind them.
#[derive(Debug, Default)]
pub struct LockedOut(Planner);

impl LockedOut {
    /// Wraps the production agent's planner, which has got them at its start.
    pub fn new(mut planner: Planner) -> Self {
        planner.apply(Event::ApiServers(BTreeSet::new()));
        Self(planner)
    }
}

impl DesiredState for LockedOut {
    fn apply(&mut self, event: Event) -> Dirty {
        match event {
            Event::ApiServers(_) => Dirty::new(),
            other => self.0.apply(other),
        }
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.0.plan_service(service)
    }

    fn plan_api_access(&self, _: ObjectId) -> ServicePlan {
        ServicePlan::default()
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}
