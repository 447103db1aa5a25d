//! What the API says, as far as the datapath needs it. No Kubernetes types, no eBPF types.
//!
//! ```text
//! watches ─▶ relist ─▶ Event ─▶ Model::apply ─▶ set of services to be looked at again
//! ```
//!
//! # Guarantees
//! - Objects are told apart by the number of their (namespace, name); EndpointSlices belong to the Service of
//!   their namespace that their label `kubernetes.io/service-name` names, whether or not it exists.
//! - An event about a Service or a slice marks the services it belongs to, also if nothing that matters has
//!   changed: reconciliation is level triggered.
//! - Of two Services that claim one frontend the oldest has it, then the first by namespace and name; whoever
//!   loses or gains a frontend by an event is marked.

mod objects;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    names::{Interner, ObjectId, ObjectName},
    transport::TransportAddress,
};

pub use self::objects::{
    Endpoint, Host, Node, Policy, Probe, Service, ServicePort, Slice, SlicePort, SourceRanges,
};

/// What kind of object a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Services.
    Service,
    /// EndpointSlices.
    EndpointSlice,
    /// Nodes.
    Node,
}

/// Something that the API said, or this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Service exists, like this.
    ServiceApplied(Service),
    /// A Service doesn't exist.
    ServiceDeleted(ObjectName),
    /// An EndpointSlice exists, like this.
    SliceApplied(Slice),
    /// An EndpointSlice doesn't exist.
    SliceDeleted(ObjectName),
    /// A Node exists, like this.
    NodeApplied(Node),
    /// A Node, by its name, doesn't exist.
    NodeDeleted(String),
    /// This machine is like this.
    Host(Host),
    /// Everything of this kind has been named at least once.
    Synced(Kind),
}

/// Services to be looked at again.
pub type Dirty = BTreeSet<ObjectId>;

/// What the API says.
#[derive(Debug, Default)]
pub struct Model {
    names: Interner,
    services: HashMap<ObjectId, Service>,
    slices: HashMap<ObjectId, Stored>,
    slices_of: HashMap<ObjectId, BTreeSet<ObjectId>>,
    claims: HashMap<TransportAddress, BTreeSet<Claim>>,
    nodes: HashMap<String, Node>,
    host: Option<Host>,
    synced: BTreeSet<Kind>,
}

#[derive(Debug)]
struct Stored {
    slice: Slice,
    owner: ObjectId,
}

/// A Service's claim to a frontend; the least one wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    created: Age,
    name: Arc<ObjectName>,
    service: ObjectId,
}

/// Oldest first; an object without a creation time is the youngest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Since(i64),
    Unknown,
}

impl Model {
    /// Takes an event; the result names the services whose plan may differ from before.
    pub fn apply(&mut self, event: Event) -> Dirty {
        let mut dirty = Dirty::new();
        match event {
            Event::ServiceApplied(service) => self.put_service(service, &mut dirty),
            Event::ServiceDeleted(name) => self.remove_service(&name, &mut dirty),
            Event::SliceApplied(slice) => self.put_slice(slice, &mut dirty),
            Event::SliceDeleted(name) => self.remove_slice(&name, &mut dirty),
            Event::NodeApplied(node) => _ = self.nodes.insert(node.name.clone(), node),
            Event::NodeDeleted(name) => _ = self.nodes.remove(&name),
            Event::Host(host) => {
                self.host = Some(host);
                dirty.insert(ObjectId::NODE);
            }
            Event::Synced(kind) => _ = self.synced.insert(kind),
        }
        dirty
    }

    /// Whether every kind has been named in full at least once, and this machine has been described: until then
    /// absence means nothing.
    pub fn synced(&self) -> bool {
        self.host.is_some() && self.unsynced().next().is_none()
    }

    /// Kinds whose first list is still outstanding.
    pub fn unsynced(&self) -> impl Iterator<Item = Kind> {
        let all = [Kind::Service, Kind::EndpointSlice, Kind::Node];
        all.into_iter().filter(|kind| !self.synced.contains(kind))
    }

    /// This machine, once it has been described.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// A Node.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// All Services, by number, in no order.
    pub fn services(&self) -> impl Iterator<Item = (ObjectId, &Service)> {
        self.services.iter().map(|(&id, service)| (id, service))
    }

    /// A Service.
    pub fn service(&self, id: ObjectId) -> Option<&Service> {
        self.services.get(&id)
    }

    /// The EndpointSlices of a Service, in the order of their numbers.
    pub fn slices_of(&self, service: ObjectId) -> impl Iterator<Item = &Slice> {
        let ids = self.slices_of.get(&service).into_iter().flatten();
        ids.filter_map(|id| self.slices.get(id))
            .map(|stored| &stored.slice)
    }

    /// The Service that has a frontend.
    pub fn owner(&self, frontend: &TransportAddress) -> Option<ObjectId> {
        let claims = self.claims.get(frontend)?;
        claims.first().map(|claim| claim.service)
    }

    /// The number of a Service or slice that exists, or of a Service that a slice names.
    pub fn id(&self, name: &ObjectName) -> Option<ObjectId> {
        self.names.get(name)
    }

    /// The name of a Service or slice that exists, or of a Service that a slice names.
    pub fn name(&self, id: ObjectId) -> Option<&ObjectName> {
        self.names.name(id).map(AsRef::as_ref)
    }

    fn put_service(&mut self, service: Service, dirty: &mut Dirty) {
        let id = self.names.acquire(&service.name);
        dirty.insert(id);
        let claimed = frontends(&service);
        let claim = self.claim(id, &service);
        if let Some(before) = self.services.insert(id, service) {
            self.names.release(id);
            let gone = frontends(&before).difference(&claimed).copied().collect();
            let old = self.claim(id, &before);
            self.withdraw(&gone, &old, dirty);
            if old != claim {
                self.withdraw(&claimed, &old, dirty);
            }
        }
        for frontend in claimed {
            let claims = self.claims.entry(frontend).or_default();
            let before = claims.first().map(|claim| claim.service);
            claims.insert(claim.clone());
            let after = claims.first().map(|claim| claim.service);
            if before != after {
                dirty.extend(before.into_iter().chain(after));
            }
        }
    }

    fn remove_service(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let Some(id) = self.names.get(name) else { return };
        let Some(service) = self.services.remove(&id) else {
            return;
        };
        dirty.insert(id);
        let claim = self.claim(id, &service);
        self.withdraw(&frontends(&service), &claim, dirty);
        self.names.release(id);
    }

    fn put_slice(&mut self, slice: Slice, dirty: &mut Dirty) {
        let Some(owner) = slice.owner() else {
            return self.remove_slice(&slice.name, dirty);
        };
        let id = self.names.acquire(&slice.name);
        let owner = self.names.acquire(&owner);
        let name = slice.name.clone();
        self.remove_slice(&name, dirty);
        self.slices.insert(id, Stored { slice, owner });
        self.slices_of.entry(owner).or_default().insert(id);
        dirty.insert(owner);
    }

    fn remove_slice(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let Some(id) = self.names.get(name) else { return };
        let Some(Stored { owner, .. }) = self.slices.remove(&id) else {
            return;
        };
        dirty.insert(owner);
        if let Some(slices) = self.slices_of.get_mut(&owner) {
            slices.remove(&id);
            if slices.is_empty() {
                self.slices_of.remove(&owner);
            }
        }
        self.names.release(owner);
        self.names.release(id);
    }

    fn claim(&self, id: ObjectId, service: &Service) -> Claim {
        Claim {
            created: service.created.map_or(Age::Unknown, Age::Since),
            name: self
                .names
                .name(id)
                .map_or_else(|| Arc::new(service.name.clone()), Arc::clone),
            service: id,
        }
    }

    fn withdraw(&mut self, frontends: &BTreeSet<TransportAddress>, claim: &Claim, dirty: &mut Dirty) {
        for frontend in frontends {
            let Some(claims) = self.claims.get_mut(frontend) else {
                continue;
            };
            claims.remove(claim);
            // Whoever is first now may have been second before.
            dirty.extend(claims.first().map(|next| next.service));
            if claims.is_empty() {
                self.claims.remove(frontend);
            }
        }
    }
}

/// The frontends that a Service claims.
pub fn frontends(service: &Service) -> BTreeSet<TransportAddress> {
    let ports = service.ports.iter();
    ports.flat_map(|port| frontends_of_port(service, port)).collect()
}

/// The frontends that a Service claims for one of its ports.
pub fn frontends_of_port(
    service: &Service,
    port: &ServicePort,
) -> impl Iterator<Item = TransportAddress> + use<> {
    let (protocol, port) = (port.protocol, port.port);
    let addresses = service.cluster_ips.clone().into_iter();
    addresses.map(move |address| TransportAddress {
        protocol,
        address,
        port,
    })
}
