//! Slices mean something else than they say: by namespace, name, port, condition, or what else lists the same address.
//!
//! Each is a bug that implementations had, or a shortcut in one line of theirs: endpoints keyed by address alone
//! (cilium/cilium#22446), an entry that hides another one of its address (kubernetes/kubernetes#135266), ports matched
//! by number (cilium/cilium#15142), one number for all endpoints of a named port (kubernetes/kubernetes#132954).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Endpoint, Event, Model, Service, ServicePort, Slice, SlicePort},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// What is misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misreading {
    /// A slice belongs to Services of the name in its label, in whichever namespace.
    AnyNamespace,
    /// A slice with the name of a Service belongs to it, whatever its label says.
    OwnName,
    /// A slice belongs to the Service that its label has named first.
    FirstLabel,
    /// A port of a slice belongs to the Service port whose target port has its number.
    PortNumber,
    /// All endpoints of a Service port have the number of its first slice.
    FirstNumber,
    /// A slice without ports has the target ports of its Service.
    NoPorts,
    /// An endpoint is served only if it is ready and `serving`.
    Serving,
    /// Of the entries of a Service with one address and slice ports, the last one decides.
    LastEntry,
    /// Of the entries of a Service with one address, the last one decides, whatever its ports.
    LastAddress,
    /// An address that leaves a slice leaves all slices of its Service, until they are written again.
    LeftOne,
}

type Slices = BTreeMap<ObjectName, Slice>;

/// A planner that gets other slices than the API has.
#[derive(Debug)]
pub struct SlicesMisread {
    planner: Planner,
    misreading: Misreading,
    services: BTreeMap<ObjectName, Service>,
    /// As the API has them.
    slices: Slices,
    /// As the planner has them.
    given: Slices,
    /// Of each slice, the Service that it has named first.
    first_owners: BTreeMap<ObjectName, Option<Arc<str>>>,
    /// Addresses that have left another slice since a slice was written.
    lost: BTreeMap<ObjectName, BTreeSet<IpAddr>>,
}

impl SlicesMisread {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, misreading: Misreading) -> Self {
        Self {
            planner,
            misreading,
            services: BTreeMap::new(),
            slices: Slices::new(),
            given: Slices::new(),
            first_owners: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    fn slice_applied(&mut self, slice: &Slice) {
        self.first_owners
            .entry(slice.name.clone())
            .or_insert_with(|| slice.service.clone());
        let before = self.slices.insert(slice.name.clone(), slice.clone());
        self.lost.remove(&slice.name);
        if let Some(before) = before {
            self.has_lost(&before, &(&addresses(&before) - &addresses(slice)));
        }
    }

    fn slice_deleted(&mut self, name: &ObjectName) {
        self.first_owners.remove(name);
        self.lost.remove(name);
        if let Some(before) = self.slices.remove(name) {
            self.has_lost(&before, &addresses(&before));
        }
    }

    fn has_lost(&mut self, slice: &Slice, gone: &BTreeSet<IpAddr>) {
        for other in self
            .slices
            .values()
            .filter(|other| other.owner() == slice.owner())
        {
            if other.name != slice.name {
                self.lost.entry(other.name.clone()).or_default().extend(gone);
            }
        }
    }

    fn misread(&self) -> Slices {
        let each = |read: &dyn Fn(&mut Slice)| {
            let mut slices = self.slices.clone();
            slices.values_mut().for_each(read);
            slices
        };
        match self.misreading {
            Misreading::AnyNamespace => self.of_any_namespace(),
            Misreading::OwnName => each(&|slice| {
                if self.services.contains_key(&slice.name) {
                    slice.service = Some(Arc::clone(&slice.name.name));
                }
            }),
            Misreading::FirstLabel => each(&|slice| {
                slice.service = self.first_owners.get(&slice.name).cloned().flatten();
            }),
            Misreading::PortNumber => each(&|slice| slice.ports = self.by_number(slice)),
            Misreading::FirstNumber => each(&|slice| self.renumber(slice)),
            Misreading::NoPorts => each(&|slice| {
                if slice.ports.is_empty() {
                    slice.ports = self.target_ports(slice);
                }
            }),
            Misreading::Serving => each(&|slice| {
                let endpoints = slice.endpoints.iter_mut();
                endpoints.for_each(|endpoint| endpoint.ready &= endpoint.serving);
            }),
            Misreading::LastEntry => self.last(|slice| slice.ports.iter().map(|port| port.port).collect()),
            Misreading::LastAddress => self.last(|_| Vec::new()),
            Misreading::LeftOne => each(&|slice| {
                let lost = self.lost.get(&slice.name);
                let is_lost = |one: &Endpoint| lost.is_some_and(|lost| lost.contains(&one.address));
                slice.endpoints.retain(|one| !is_lost(one));
            }),
        }
    }

    /// Each slice in its own namespace, and a copy in every other one that has a Service of the name.
    fn of_any_namespace(&self) -> Slices {
        let mut all = self.slices.clone();
        for slice in self.slices.values() {
            let services = self.services.keys();
            let named = services.filter(|service| slice.service.as_ref() == Some(&service.name));
            for service in named.filter(|service| service.namespace != slice.name.namespace) {
                let name = format!("{}/{}", slice.name.namespace, slice.name.name);
                let name = ObjectName::new(Arc::clone(&service.namespace), name);
                let copy = Slice {
                    name: name.clone(),
                    ..slice.clone()
                };
                all.insert(name, copy);
            }
        }
        all
    }

    fn service_of(&self, slice: &Slice) -> Option<&Service> {
        self.services.get(&slice.owner()?)
    }

    fn target_ports(&self, slice: &Slice) -> Vec<SlicePort> {
        let ports = self
            .service_of(slice)
            .into_iter()
            .flat_map(|service| &service.ports);
        let target = |port: &ServicePort| SlicePort {
            name: Arc::clone(&port.name),
            port: port.target_port.unwrap_or(port.port),
            protocol: port.protocol,
        };
        ports.map(target).collect()
    }

    fn by_number(&self, slice: &Slice) -> Vec<SlicePort> {
        let wanted = self.target_ports(slice).into_iter();
        let has_it = |wanted: &SlicePort| {
            let mut ports = slice.ports.iter();
            ports.any(|port| (port.port, port.protocol) == (wanted.port, wanted.protocol))
        };
        wanted.filter(has_it).collect()
    }

    fn renumber(&self, slice: &mut Slice) {
        for port in &mut slice.ports {
            let of_service = self.slices.values().filter(|other| {
                (&other.name.namespace, &other.service) == (&slice.name.namespace, &slice.service)
            });
            let mut ports = of_service.flat_map(|other| &other.ports);
            let first = ports.find(|other| (&other.name, other.protocol) == (&port.name, port.protocol));
            port.port = first.map_or(port.port, |first| first.port);
        }
    }

    /// Only the last entry of each address, and of what else tells entries apart, in the slices of one Service.
    fn last(&self, also: impl Fn(&Slice) -> Vec<u16>) -> Slices {
        let mut all = self.slices.clone();
        let mut seen = BTreeSet::new();
        for slice in all.values_mut().rev() {
            let key = (slice.owner(), also(slice));
            let entries = std::mem::take(&mut slice.endpoints).into_iter().rev();
            slice.endpoints = entries
                .filter(|entry| seen.insert((key.clone(), entry.address)))
                .collect();
            slice.endpoints.reverse();
        }
        all
    }
}

fn addresses(slice: &Slice) -> BTreeSet<IpAddr> {
    slice.endpoints.iter().map(|endpoint| endpoint.address).collect()
}

impl DesiredState for SlicesMisread {
    fn apply(&mut self, event: Event) -> Dirty {
        let mut dirty = Dirty::new();
        match event {
            Event::SliceApplied(slice) => self.slice_applied(&slice),
            Event::SliceDeleted(name) => self.slice_deleted(&name),
            other => {
                match &other {
                    Event::ServiceApplied(service) => {
                        self.services.insert(service.name.clone(), service.clone());
                    }
                    Event::ServiceDeleted(name) => _ = self.services.remove(name),
                    _ => return self.planner.apply(other),
                }
                dirty.extend(self.planner.apply(other));
            }
        }
        let wanted = self.misread();
        let gone = self.given.keys().filter(|name| !wanted.contains_key(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            dirty.extend(self.planner.apply(Event::SliceDeleted(name)));
        }
        for (name, slice) in &wanted {
            if self.given.get(name) != Some(slice) {
                dirty.extend(self.planner.apply(Event::SliceApplied(slice.clone())));
            }
        }
        self.given = wanted;
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
