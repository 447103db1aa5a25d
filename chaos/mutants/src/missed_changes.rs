//! What a Service no longer has stays: the bugs of an agent that writes what is new and misses what has gone.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::TransportAddress,
    model::{Dirty, Event, Model, Service},
    names::{ObjectId, ObjectName},
    plan::{FrontendPlan, PortId, ServicePlan},
};

/// What is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The deletion of a Service.
    Deletion,
    /// Another number or node port of a port: the former one serves too.
    FormerPorts,
    /// The deletion of an EndpointSlice whose Service was deleted before.
    OrphanedSlices,
    /// The deletion of all source ranges of a Service.
    Ranges,
    /// An address that leaves the status of a Service, or is no longer to be captured.
    Balancers,
}

/// Frontends of the ports of a Service.
type Frontends = BTreeMap<PortId, BTreeMap<TransportAddress, FrontendPlan>>;

/// A planner that does not get what has gone.
#[derive(Debug)]
pub struct MissedChanges {
    planner: Planner,
    missed: Missed,
    /// All frontends that a Service's ports have had.
    former: HashMap<ObjectId, Frontends>,
    /// Services that exist, as the planner got them, and the Service of each slice.
    services: HashMap<ObjectName, Service>,
    owners: HashMap<ObjectName, ObjectName>,
}

impl MissedChanges {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, missed: Missed) -> Self {
        Self {
            planner,
            missed,
            former: HashMap::new(),
            services: HashMap::new(),
            owners: HashMap::new(),
        }
    }

    /// Whether the planner does not get the event.
    fn misses(&self, event: &Event) -> bool {
        match (self.missed, event) {
            (Missed::Deletion, Event::ServiceDeleted(_)) => true,
            (Missed::OrphanedSlices, Event::SliceDeleted(name)) => self
                .owners
                .get(name)
                .is_some_and(|owner| !self.services.contains_key(owner)),
            _ => false,
        }
    }

    /// The event with what has gone.
    fn with_former(&self, mut event: Event) -> Event {
        if let Event::ServiceApplied(service) = &mut event
            && let Some(before) = self.services.get(&service.name)
        {
            match self.missed {
                Missed::Ranges if service.source_ranges.is_none() => {
                    service.source_ranges.clone_from(&before.source_ranges);
                }
                Missed::Balancers => {
                    let listed = |address: &&IpAddr| !service.load_balancer_ips.contains(address);
                    let gone: Vec<IpAddr> = before.load_balancer_ips.iter().filter(listed).copied().collect();
                    service.load_balancer_ips.extend(gone);
                }
                _ => {}
            }
        }
        event
    }

    fn remember(&mut self, event: &Event) {
        match event {
            Event::ServiceApplied(service) => {
                self.services.insert(service.name.clone(), service.clone());
            }
            Event::ServiceDeleted(name) => {
                self.services.remove(name);
                if let Some(id) = self.planner.model().id(name) {
                    self.former.remove(&id);
                }
            }
            Event::SliceApplied(slice) => {
                if let Some(owner) = slice.owner() {
                    self.owners.insert(slice.name.clone(), owner);
                }
            }
            _ => {}
        }
    }
}

impl DesiredState for MissedChanges {
    fn apply(&mut self, event: Event) -> Dirty {
        let is_missed = self.misses(&event);
        let event = self.with_former(event);
        self.remember(&event);
        if is_missed {
            return Dirty::new();
        }
        let dirty = self.planner.apply(event);
        if self.missed == Missed::FormerPorts {
            for &id in dirty.iter().filter(|id| **id != ObjectId::NODE) {
                let former = self.former.entry(id).or_default();
                for (port, plan) in self.planner.plan_service(id).ports {
                    former.entry(port).or_default().extend(plan.frontends);
                }
            }
        }
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        if let Some(former) = self.former.get(&service) {
            for (port, plan) in &mut plan.ports {
                for (address, frontend) in former.get(port).into_iter().flatten() {
                    plan.frontends.entry(*address).or_insert(*frontend);
                }
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
