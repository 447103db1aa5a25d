//! `default/kubernetes` is not served: the bug of an agent that has its own API endpoint, and ignores that pods do not.

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

use crate::is_kubernetes;

/// A planner that does not get this Service.
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
