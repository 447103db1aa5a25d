//! The API's objects, as far as the datapath needs them. No Kubernetes types, no eBPF types.
//!
//! ```text
//! watches ─▶ relist ─▶ Event ─▶ Model::apply ─▶ Dirty: the Services to be planned again
//! ```
//!
//! | file | what |
//! |---|---|
//! | `objects` | Services, EndpointSlices, Nodes, ServiceCIDRs, this machine; events about them |
//! | `frontends` | the frontends that a Service asks for |
//! | `claims` | the owner of each frontend, among the Services that ask for it |
//! | `slices`, `endpoints` | a Service's slices; endpoints' addresses that are cluster IPs |
//! | `machines` | Nodes and this machine; their addresses |
//! | `maglev_size` | how many slots Maglev's tables of all Services take at most |
//! | `api_frontends` | frontends through which the agent reaches its API servers |
//! | `service_cidrs` | the ranges of cluster IPs |
//! | `address_users`, `interned` | addresses and the Services that use them; equal texts in memory once |
//!
//! # Guarantees
//! - Objects are identified by (namespace, name), compared whole; EndpointSlices belong to the Service of their
//!   namespace that their label `kubernetes.io/service-name` names, whether or not it exists.
//! - An event about a Service or a slice marks its Service, even if nothing that matters has changed: reconciliation is
//!   level triggered. An event about this machine marks the node itself. So does one about a Node whose addresses, or
//!   whose pods' ranges, have changed.
//! - Every other Service whose plan an event changes is marked. Its plan changes when a frontend that it asks for gets
//!   another owner, when a load balancer address of it becomes a machine's or ceases to be, when this machine gets other
//!   addresses and answers health checks for it, when an endpoint of it becomes a cluster IP or ceases to be, and when a
//!   frontend of it becomes one through which the agent reaches an API server, or ceases to be. Nothing else is marked.
//!   [`plan::apply`](crate::plan::apply) marks what depends on this node's zone or on the size of Maglev's tables, which
//!   the model does not know.
//! - An event costs what it changes: its own object, and what it marks.

mod address_users;
mod api_frontends;
mod claims;
mod endpoints;
mod frontends;
mod interned;
mod machines;
mod maglev_size;
mod objects;
mod service_cidrs;
mod slices;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use self::{
    claims::{Claim, Claims, claims, find, probe_claim},
    endpoints::Endpoints,
    interned::Pool,
    machines::Machines,
    service_cidrs::ServiceCidrs,
    slices::Slices,
};
use crate::{
    endpoint_address::{Range, TransportAddress},
    hash::HashMap,
    names::{Interner, ObjectId, ObjectName},
};

pub use self::{
    frontends::{Exposure, FRONTENDS, Frontend, frontends, health_checks},
    maglev_size::Tables,
    objects::{
        Endpoint, Event, Host, Kind, Node, Policy, Probe, Service, ServiceCidr, ServicePort, Slice,
        SlicePort, SourceRanges,
    },
    service_cidrs::ServiceRanges,
};

/// Services to be planned again.
pub type Dirty = BTreeSet<ObjectId>;

/// The API's objects, and this machine.
#[derive(Debug, Default)]
pub struct Model {
    /// Services that exist, or that a slice names.
    names: Interner,
    services: HashMap<ObjectId, Box<Service>>,
    slices: Slices,
    claims: Claims,
    endpoints: Endpoints,
    tables: Tables,
    machines: Machines,
    service_cidrs: ServiceCidrs,
    /// Services for which this machine answers health checks at load balancer addresses.
    health_checked: BTreeSet<ObjectId>,
    /// Addresses and ports at which the agent connects to its API servers.
    api_servers: BTreeSet<(IpAddr, u16)>,
    pool: Pool,
    synced: BTreeSet<Kind>,
}

impl Model {
    /// Applies an event. The result: the Services whose plan may have changed.
    pub fn apply(&mut self, event: Event) -> Dirty {
        let mut dirty = Dirty::new();
        match event {
            Event::ServiceApplied(service) => self.put_service(service, &mut dirty),
            Event::ServiceDeleted(name) => self.remove_service(&name, &mut dirty),
            Event::SliceApplied(slice) => self.put_slice(slice, &mut dirty),
            Event::SliceDeleted(name) => self.remove_slice(&name, &mut dirty),
            Event::NodeApplied(node) => {
                let name = node.name.clone();
                self.machines.put_node(&name, Some(node), &mut dirty);
            }
            Event::NodeDeleted(name) => self.machines.put_node(&name, None, &mut dirty),
            // No plan depends on ServiceCIDRs.
            Event::ServiceCidrApplied(object) => self.service_cidrs.put(object.name.clone(), Some(object)),
            Event::ServiceCidrDeleted(name) => self.service_cidrs.put(name, None),
            Event::ServiceRanges(ranges) => self.service_cidrs.given = Some(ranges),
            Event::Host(host) => self.put_host(host, &mut dirty),
            Event::ApiServers(servers) => self.put_api_servers(servers, &mut dirty),
            Event::Synced(kind) => _ = self.synced.insert(kind),
        }
        dirty
    }

    /// Whether every kind that plans are made of has been listed once, and this machine is known. Until then a missing
    /// object may exist.
    pub fn synced(&self) -> bool {
        let mut unsynced = self.unsynced();
        self.host().is_some() && unsynced.all(|kind| kind == Kind::ServiceCidr)
    }

    /// Kinds whose first list is still outstanding.
    pub fn unsynced(&self) -> impl Iterator<Item = Kind> {
        let given = self.service_cidrs.given.is_some();
        let kinds = Kind::ALL.into_iter().filter(|kind| !self.synced.contains(kind));
        kinds.filter(move |kind| *kind != Kind::ServiceCidr || !given)
    }

    /// The Service ranges; `None`: they are not known yet.
    pub fn service_ranges(&self) -> Option<ServiceRanges> {
        let known = self.unsynced().all(|kind| kind != Kind::ServiceCidr);
        known.then(|| self.service_cidrs.ranges())
    }

    /// Whether there is no Service, slice or Node, and no address of this machine.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
            && self.services.is_empty()
            && self.slices.is_empty()
            && self.claims.is_empty()
            && self.endpoints.is_empty()
            && self.tables.is_empty()
            && self.machines.is_empty()
            && self.health_checked.is_empty()
    }

    /// All Services, by number, in no order.
    pub fn services(&self) -> impl Iterator<Item = (ObjectId, &Service)> {
        self.services.iter().map(|(&id, service)| (id, &**service))
    }

    /// A Service.
    pub fn service(&self, id: ObjectId) -> Option<&Service> {
        self.services.get(&id).map(AsRef::as_ref)
    }

    /// The EndpointSlices of a Service, sorted by name.
    pub fn slices_of(&self, service: ObjectId) -> &[Slice] {
        self.slices.of(service)
    }

    /// Services whose endpoints have zone hints.
    pub fn zoned(&self) -> BTreeSet<ObjectId> {
        self.slices.zoned()
    }

    /// The owner of a frontend: a Service, or [`ObjectId::NODE`].
    pub fn owner(&self, frontend: &TransportAddress) -> Option<ObjectId> {
        self.claims.owner(frontend).map(|claim| claim.service)
    }

    /// Endpoints' addresses that are a Service's cluster IP, and so can't be backends.
    pub fn refused(&self) -> &BTreeSet<IpAddr> {
        self.endpoints.refused()
    }

    /// How many slots Maglev's tables take at most.
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// This machine, once it is known.
    pub fn host(&self) -> Option<&Host> {
        self.machines.host()
    }

    /// A Node.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.machines.node(name)
    }

    /// All Nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.machines.nodes()
    }

    /// The addresses of clients in the cluster: those of all Nodes, and their pods' ranges; in no order.
    pub fn clients(&self) -> impl Iterator<Item = Range> {
        self.machines.clients()
    }

    /// Whether an address is a Node's, or this machine's.
    pub fn is_machine(&self, address: IpAddr) -> bool {
        self.machines.has_address(address)
    }

    /// The number of a Service that exists, or that a slice names.
    pub fn id(&self, name: &ObjectName) -> Option<ObjectId> {
        self.names.get(name)
    }

    /// The name of a Service that exists, or that a slice names.
    pub fn name(&self, id: ObjectId) -> Option<&ObjectName> {
        self.names.name(id)
    }

    fn put_service(&mut self, mut service: Service, dirty: &mut Dirty) {
        let id = self.names.acquire(&service.name);
        if let Some(name) = self.names.name(id) {
            service.name = name.clone();
        }
        self.pool.share_service(&mut service);
        dirty.insert(id);
        let before = self.services.remove(&id);
        if before.is_some() {
            self.names.release(id);
        }
        self.replace(id, before.as_deref(), Some(&service), dirty);
        self.services.insert(id, Box::new(service));
    }

    fn remove_service(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let Some(id) = self.names.get(name) else { return };
        let Some(service) = self.services.remove(&id) else {
            return;
        };
        dirty.insert(id);
        self.replace(id, Some(&service), None, dirty);
        self.names.release(id);
    }

    /// Updates everything that other Services' plans may depend on.
    fn replace(
        &mut self,
        id: ObjectId,
        before: Option<&Service>,
        after: Option<&Service>,
        dirty: &mut Dirty,
    ) {
        let [old, new] = [before, after].map(|service| service.map_or_else(Vec::new, |one| claims(id, one)));
        self.reclaim(&old, &new, dirty);
        let [old, new] = [before, after].map(|one| one.map_or(&[][..], |one| &one.cluster_ips));
        if old != new {
            self.endpoints.cluster_ips(old, new, dirty);
        }
        let [old, new] = [before, after].map(|one| one.map_or(&[][..], |one| &one.load_balancer_ips));
        if old != new {
            self.machines.load_balancers(id, old, new);
        }
        self.tables.service(id, after);
        if after.is_some_and(|service| health_checks(service).next().is_some()) {
            self.health_checked.insert(id);
        } else {
            self.health_checked.remove(&id);
        }
    }

    /// Replaces claims. Both lists are sorted by frontend, each once.
    fn reclaim(
        &mut self,
        old: &[(TransportAddress, Claim)],
        new: &[(TransportAddress, Claim)],
        dirty: &mut Dirty,
    ) {
        if old == new {
            return;
        }
        for (frontend, claim) in new {
            let before = find(old, frontend);
            if before != Some(claim) {
                self.claims.replace(*frontend, before, Some(claim.clone()), dirty);
            }
        }
        for (frontend, claim) in old {
            if find(new, frontend).is_none() {
                self.claims.replace(*frontend, Some(claim), None, dirty);
            }
        }
    }

    fn put_slice(&mut self, mut slice: Slice, dirty: &mut Dirty) {
        let Some(owner) = slice.owner() else {
            return self.remove_slice(&slice.name, dirty);
        };
        let id = self.names.acquire(&owner);
        if self.slices.owner(&slice.name).is_some_and(|before| before != id) {
            self.remove_slice(&slice.name, dirty);
        }
        if let Some(ObjectName { namespace, name }) = self.names.name(id) {
            slice.name.namespace = Arc::clone(namespace);
            slice.service = Some(Arc::clone(name));
        }
        self.pool.share_slice(&mut slice);
        dirty.insert(id);
        let after = addresses(&slice);
        let before = self.slices.put(id, slice);
        if before.is_some() {
            self.names.release(id);
        }
        let before = before.as_ref().map_or_else(Vec::new, addresses);
        self.endpoints.replace(id, &before, &after);
        self.tables.endpoints(id, &before, &after);
    }

    fn remove_slice(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let Some((owner, slice)) = self.slices.remove(name) else {
            return;
        };
        dirty.insert(owner);
        let before = addresses(&slice);
        self.endpoints.replace(owner, &before, &[]);
        self.tables.endpoints(owner, &before, &[]);
        self.names.release(owner);
    }

    fn put_host(&mut self, host: Host, dirty: &mut Dirty) {
        dirty.insert(ObjectId::NODE);
        let api_node_ports = self.api_node_ports();
        let new: Vec<_> = host.probe.iter().map(probe_claim).collect();
        let has_other_addresses = self
            .host()
            .is_none_or(|before| before.addresses != host.addresses);
        dirty.extend(self.health_checked.iter().filter(|_| has_other_addresses));
        let after = host.addresses.clone();
        let before = self.machines.put_host(host, dirty);
        // Backends at these addresses become local, or cease to be.
        let none = BTreeSet::new();
        let old = before.as_ref().map_or(&none, |host| &host.addresses);
        let changed = old.symmetric_difference(&after);
        dirty.extend(changed.flat_map(|address| self.endpoints.at(*address)));
        let old = before.iter().filter_map(|host| host.probe.as_ref());
        let old: Vec<_> = old.map(probe_claim).collect();
        self.reclaim(&old, &new, dirty);
        self.mark_owners(&api_node_ports, &self.api_node_ports(), dirty);
    }
}

fn addresses(slice: &Slice) -> Vec<IpAddr> {
    slice.endpoints.iter().map(|endpoint| endpoint.address).collect()
}
