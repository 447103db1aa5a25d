//! The agent has no way of its own to the API: it sees what everybody sees, and remembers nothing.
//!
//! The lock-out of incident 1. The agent rightly programs that the Service by which it reaches the API has nobody, and is
//! then refused there itself: it can't see that this has changed. A restart does not help, because the maps are pinned.

use std::collections::BTreeSet;

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that is not told which addresses lead the agent to the API, and lets nobody learn who is behind them.
#[derive(Debug, Default)]
pub struct LockedOut(Planner);

impl LockedOut {
    /// Around the production agent's, which has been told at its start.
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
