//! Deleting a Service removes its load balancer addresses and external IPs, even if other Services have them, too.
//!
//! The bug of an agent that does not count the Services of an address: another Service there is not served until it
//! changes.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model, Service},
    names::ObjectId,
    plan::ServicePlan,
};

/// A planner that removes addresses with the first of their Services.
#[derive(Debug, Default)]
pub struct AddressesRemoved {
    planner: Planner,
    /// What each Service has lost since it changed last.
    lost: HashMap<ObjectId, BTreeSet<IpAddr>>,
}

impl AddressesRemoved {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner) -> Self {
        Self {
            planner,
            ..Self::default()
        }
    }
}

fn external(service: &Service) -> BTreeSet<IpAddr> {
    let all = service.load_balancer_ips.iter().chain(&service.external_ips);
    all.copied().collect()
}

impl DesiredState for AddressesRemoved {
    fn apply(&mut self, event: Event) -> Dirty {
        let mut losers = Dirty::new();
        let model = self.planner.model();
        match &event {
            Event::ServiceApplied(service) => {
                if let Some(id) = model.id(&service.name) {
                    self.lost.remove(&id);
                }
            }
            Event::ServiceDeleted(name) => {
                let gone = model.id(name).and_then(|id| model.service(id)).map(external);
                let gone = gone.unwrap_or_default();
                for (id, service) in model.services().filter(|(_, other)| other.name != *name) {
                    let lost = &external(service) & &gone;
                    if !lost.is_empty() {
                        self.lost.entry(id).or_default().extend(lost);
                        losers.insert(id);
                    }
                }
            }
            _ => {}
        }
        let mut dirty = self.planner.apply(event);
        dirty.append(&mut losers);
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        if let Some(lost) = self.lost.get(&service) {
            for port in plan.ports.values_mut() {
                port.frontends
                    .retain(|frontend, _| !lost.contains(&frontend.address));
            }
            plan.ports.retain(|_, port| !port.frontends.is_empty());
            plan.addresses.retain(|address, _| !lost.contains(address));
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
