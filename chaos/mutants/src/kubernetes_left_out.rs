//! `default/kubernetes` is not served: an agent that has its own way to the API, and forgets that others have none.

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

use crate::is_kubernetes;

/// A planner that is not told of it.
#[derive(Debug, Default)]
pub struct KubernetesLeftOut(pub Planner);

impl DesiredState for KubernetesLeftOut {
    fn apply(&mut self, event: Event) -> Dirty {
        match event {
            Event::ServiceApplied(service) if is_kubernetes(&service.name) => Dirty::default(),
            event => self.0.apply(event),
        }
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.0.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}
