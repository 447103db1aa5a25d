//! What the API says, as far as the datapath needs it. No Kubernetes types, no eBPF types.
//!
//! ```text
//! watches ─▶ relist ─▶ Event ─▶ Model::apply ─▶ Dirty: the Services to be planned again
//! ```
//!
//! | file | what |
//! |---|---|
//! | `objects` | Services, EndpointSlices, Nodes, ServiceCIDRs, this machine; events about them |
//! | `frontends` | what a Service asks for |
//! | `claims` | who has a frontend of all who ask for it |
//! | `slices`, `endpoints` | a Service's slices; which addresses in them are cluster IPs |
//! | `machines` | Nodes and this machine; which addresses are theirs |
//! | `tables` | how many slots Maglev's tables take at most, all Services' together |
//! | `ways` | where the agent reaches its API servers; by which frontends |
//! | `service_cidrs` | the ranges that cluster IPs are from |
//! | `holders`, `pool` | addresses and who has them; texts in memory once |
//!
//! # Guarantees
//! - Objects are told apart by their (namespace, name), compared whole; EndpointSlices belong to the Service of their
//!   namespace that their label `kubernetes.io/service-name` names, whether or not it exists.
//! - An event about a Service or a slice marks the Services it belongs to, also if nothing that matters has
//!   changed: reconciliation is level triggered. So does one about this machine with the node itself, and one about a
//!   Node whose addresses, or whose pods', are others than before.
//! - Every other Service whose plan an event changes is marked: for a frontend that it gains or loses, or that
//!   changes hands between others; for an address of its load balancer that becomes a machine's, or is none any more;
//!   for other addresses of this machine, where it answers health checks of load balancers;
//!   for an endpoint that becomes a cluster IP, or is none any more; for a frontend that becomes the agent's way to an
//!   API server, or is none any more. Nothing else is marked. Two things the model does
//!   not know: which Node is this one, whose zone hints are about, and whether there are tables, all of which may change
//!   their size; [`plan::apply`](crate::plan::apply) does.
//! - An event costs what it changes: its own object, and what it marks.

mod claims;
mod endpoints;
mod frontends;
mod holders;
mod machines;
mod objects;
mod pool;
mod service_cidrs;
mod slices;
mod tables;
mod ways;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use self::{
    claims::{Claim, Claims, claims, find, probe_claim},
    endpoints::Endpoints,
    machines::Machines,
    pool::Pool,
    service_cidrs::ServiceCidrs,
    slices::Slices,
};
use crate::{
    hash::HashMap,
    names::{Interner, ObjectId, ObjectName},
    transport::{Range, TransportAddress},
};

pub use self::{
    frontends::{Exposure, FRONTENDS, Frontend, frontends, health_checks},
    objects::{
        Endpoint, Event, Host, Kind, Node, Policy, Probe, Service, ServiceCidr, ServicePort, Slice,
        SlicePort, SourceRanges,
    },
    service_cidrs::ServiceRanges,
    tables::Tables,
};

/// Services to be looked at again.
pub type Dirty = BTreeSet<ObjectId>;

/// What the API says, and what this machine is.
#[derive(Debug, Default)]
pub struct Model {
    /// Services that are there, or that a slice names.
    names: Interner,
    services: HashMap<ObjectId, Box<Service>>,
    slices: Slices,
    claims: Claims,
    endpoints: Endpoints,
    tables: Tables,
    machines: Machines,
    service_cidrs: ServiceCidrs,
    /// Services that are asked for their health at addresses of load balancers: this machine answers.
    health_checked: BTreeSet<ObjectId>,
    /// Where the agent reaches its API servers.
    api_servers: BTreeSet<(IpAddr, u16)>,
    pool: Pool,
    synced: BTreeSet<Kind>,
}

impl Model {
    /// Takes an event; the result names the Services whose plan may differ from before.
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
            // No Service's plan depends on them.
            Event::ServiceCidrApplied(object) => self.service_cidrs.put(object.name.clone(), Some(object)),
            Event::ServiceCidrDeleted(name) => self.service_cidrs.put(name, None),
            Event::ServiceRanges(ranges) => self.service_cidrs.given = Some(ranges),
            Event::Host(host) => self.put_host(host, &mut dirty),
            Event::ApiServers(servers) => self.put_api_servers(servers, &mut dirty),
            Event::Synced(kind) => _ = self.synced.insert(kind),
        }
        dirty
    }

    /// Whether every kind that plans are made of has been named in full at least once, and this machine has been
    /// described: until then absence means nothing.
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

    /// Whether nothing is known of any Service, slice or Node, or of addresses of this machine.
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

    /// Services that have hints about zones.
    pub fn zoned(&self) -> BTreeSet<ObjectId> {
        self.slices.zoned()
    }

    /// Who has a frontend: a Service, or [`ObjectId::NODE`].
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

    /// This machine, once it has been described.
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

    /// The addresses of the cluster's clients: all Nodes' and their pods', as far as Nodes say; in no order.
    pub fn clients(&self) -> impl Iterator<Item = Range> {
        self.machines.clients()
    }

    /// Whether an address is a Node's, or this machine's.
    pub fn is_machine(&self, address: IpAddr) -> bool {
        self.machines.have(address)
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

    /// What others may depend on.
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

    /// Both by frontend, each once and in order.
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
        let ways = self.node_port_ways();
        let new: Vec<_> = host.probe.iter().map(probe_claim).collect();
        let moved = self
            .host()
            .is_none_or(|before| before.addresses != host.addresses);
        dirty.extend(self.health_checked.iter().filter(|_| moved));
        let after = host.addresses.clone();
        let before = self.machines.put_host(host, dirty);
        // Backends at them are this node's, and were not, or the other way round.
        let none = BTreeSet::new();
        let old = before.as_ref().map_or(&none, |host| &host.addresses);
        let changed = old.symmetric_difference(&after);
        dirty.extend(changed.flat_map(|address| self.endpoints.at(*address)));
        let old = before.iter().filter_map(|host| host.probe.as_ref());
        let old: Vec<_> = old.map(probe_claim).collect();
        self.reclaim(&old, &new, dirty);
        self.mark_ways(&ways, &self.node_port_ways(), dirty);
    }
}

fn addresses(slice: &Slice) -> Vec<IpAddr> {
    slice.endpoints.iter().map(|endpoint| endpoint.address).collect()
}
