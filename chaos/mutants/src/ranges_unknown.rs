//! Addresses in the Service ranges that no Service has are not refused, as with most implementations: packets to them are routed on.
//!
//! No bug of its own: beside one, it shows what refusing them would hide.

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that hears of no range.
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
