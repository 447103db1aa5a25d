//! API objects, as far as the datapath needs them, and events about them.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use crate::{
    endpoint_address::{Protocol, Range, TransportAddress},
    names::{NameSet, ObjectName},
};

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Services.
    Service,
    /// EndpointSlices.
    EndpointSlice,
    /// Nodes.
    Node,
    /// ServiceCIDRs. An API server may not know them (before 1.33): Services are served without them.
    ServiceCidr,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Service, Self::EndpointSlice, Self::Node, Self::ServiceCidr];

    /// Whether its objects are in namespaces.
    pub const fn is_namespaced(self) -> bool {
        matches!(self, Self::Service | Self::EndpointSlice)
    }
}

/// A change of the API's objects, of this machine, or of what is known of either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Service was created or changed.
    ServiceApplied(Service),
    /// A Service was deleted.
    ServiceDeleted(ObjectName),
    /// An EndpointSlice was created or changed.
    SliceApplied(Slice),
    /// An EndpointSlice was deleted.
    SliceDeleted(ObjectName),
    /// A Node was created or changed.
    NodeApplied(Node),
    /// A Node was deleted; its name.
    NodeDeleted(String),
    /// A ServiceCIDR was created or changed.
    ServiceCidrApplied(ServiceCidr),
    /// A ServiceCIDR was deleted; its name.
    ServiceCidrDeleted(String),
    /// The ranges of cluster IPs from the command line, which replace those of ServiceCIDRs.
    ServiceRanges(BTreeSet<Range>),
    /// This machine has changed.
    Host(Host),
    /// Addresses and ports at which the agent connects to its API servers by TCP; names are resolved.
    ApiServers(BTreeSet<(IpAddr, u16)>),
    /// The first list of this kind is complete.
    Synced(Kind),
}

/// A Service.
///
/// All its addresses can be frontends; [`decode`](crate::decode) leaves others out, with a finding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.creationTimestamp`, seconds since the Unix epoch.
    pub created: Option<i64>,
    /// Cluster IPs; their families are the Service's. Empty for Services that are not balanced here: headless ones,
    /// ExternalName, those of another proxy.
    pub cluster_ips: Vec<IpAddr>,
    /// External IPs.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of its load balancers whose packets come with that address (`ipMode: VIP`, KEP-1860); type
    /// LoadBalancer alone has any.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Its ports, unique by number and protocol.
    pub ports: Vec<ServicePort>,
    /// `externalTrafficPolicy`.
    pub external_policy: Policy,
    /// `internalTrafficPolicy`.
    pub internal_policy: Policy,
    /// Time limit of the session affinity `ClientIP`, in seconds; 0: none.
    pub affinity_seconds: u32,
    /// `loadBalancerSourceRanges`; `None`: none, or not of type LoadBalancer.
    pub source_ranges: Option<SourceRanges>,
    /// `healthCheckNodePort`; `None`: none, not of type LoadBalancer, or not of policy Local.
    pub health_check_port: Option<u16>,
}

impl Service {
    /// Without addresses and ports, and with the defaults of the API.
    pub fn new(name: ObjectName) -> Self {
        Self {
            name,
            created: None,
            cluster_ips: Vec::new(),
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            ports: Vec::new(),
            external_policy: Policy::Cluster,
            internal_policy: Policy::Cluster,
            affinity_seconds: 0,
            source_ranges: None,
            health_check_port: None,
        }
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// Its name; empty for the only port of a Service.
    pub name: Arc<str>,
    /// The frontends' port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The node port; only types NodePort and LoadBalancer have one.
    pub node_port: Option<u16>,
    /// The target port's number; `None`: it is a name, and each endpoint has its own number.
    pub target_port: Option<u16>,
}

/// A traffic policy: the backends that serve a node's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// All backends.
    #[default]
    Cluster,
    /// Those on that node.
    Local,
}

/// The clients that may use a Service's load balancer addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceRanges {
    /// The ranges that could be read.
    pub ranges: BTreeSet<Range>,
    /// Whether a range could not be read: it admits no client, of either family.
    pub unreadable: bool,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Namespace and name.
    pub name: ObjectName,
    /// Value of the label `kubernetes.io/service-name`; `None`: it belongs to no Service.
    pub service: Option<Arc<str>>,
    /// Its ports, unique by name and protocol.
    pub ports: Vec<SlicePort>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl Slice {
    /// Namespace and name of the Service it belongs to.
    pub fn owner(&self) -> Option<ObjectName> {
        Some(ObjectName {
            namespace: Arc::clone(&self.name.namespace),
            name: Arc::clone(self.service.as_ref()?),
        })
    }
}

/// A port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlicePort {
    /// Matches [`ServicePort::name`].
    pub name: Arc<str>,
    /// The backends' port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its first address; the API gives others no meaning.
    pub address: IpAddr,
    /// Whether it takes traffic.
    pub ready: bool,
    /// Whether it can serve, ready or not.
    pub serving: bool,
    /// Whether it is terminating.
    pub terminating: bool,
    /// The node that it runs on, if known.
    pub node: Option<Arc<str>>,
    /// Nodes whose traffic should prefer it (`hints.forNodes`, KEP-4444).
    pub for_nodes: NameSet,
    /// Zones whose traffic should prefer it (`hints.forZones`, KEP-2433).
    pub for_zones: NameSet,
}

impl Endpoint {
    /// A ready endpoint without node and hints.
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            ready: true,
            serving: true,
            terminating: false,
            node: None,
            for_nodes: NameSet::default(),
            for_zones: NameSet::default(),
        }
    }
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// The IP addresses of `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// Those of type `InternalIP`, in order.
    pub internal: Vec<IpAddr>,
    /// The ranges of its pods' addresses (`spec.podCIDRs`); empty where the CNI has its own.
    pub pods: Vec<Range>,
}

impl Node {
    /// The addresses of clients on it: its own and its pods'. IPv4-mapped IPv6 addresses are left out: in the maps they
    /// would be IPv4 ones.
    pub fn clients(&self) -> impl Iterator<Item = Range> {
        let own = self.addresses.iter();
        let own = own.filter(|address| !matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()));
        own.map(|&address| Range::of(address))
            .chain(self.pods.iter().copied())
    }
}

/// A ServiceCIDR (networking.k8s.io/v1, KEP-1880).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceCidr {
    /// Its name.
    pub name: String,
    /// Ranges of cluster IPs (`spec.cidrs`).
    pub ranges: Vec<Range>,
}

/// This machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Addresses of its devices, loopback excepted.
    pub addresses: BTreeSet<IpAddr>,
    /// The agent's own probe.
    pub probe: Option<Probe>,
}

/// The frontend that the agent connects to in order to check the programs, with itself as the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The address that the agent connects to.
    pub frontend: TransportAddress,
    /// The address at which the agent listens.
    pub backend: TransportAddress,
}
