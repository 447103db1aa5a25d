//! Addresses in the Service ranges without a Service are not refused, as with most implementations: packets to them are
//! routed on.
//!
//! No bug of its own: with another bug, it shows what these refusals would hide.

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that does not get Service ranges.
#[derive(Debug, Default)]
pub struct RangesUnknown(pub Planner);

impl DesiredState for RangesUnknown {
    fn apply(&mut self, event: Event) -> Dirty {
        if matches!(event, Event::ServiceCidrApplied(_) | Event::ServiceRanges(_)) {
            return Dirty::new();
        }
        self.0.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.0.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}
