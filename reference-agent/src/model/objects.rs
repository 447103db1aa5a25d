//! API objects, as far as the datapath needs them, and what is said of them.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use crate::{
    names::{NameSet, ObjectName},
    transport::{Protocol, Range, TransportAddress},
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
    /// ServiceCIDRs. An API server may have none (before 1.33), and nobody waits for them.
    ServiceCidr,
}

impl Kind {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Service, Self::EndpointSlice, Self::Node, Self::ServiceCidr];

    /// Whether its objects are in namespaces.
    pub const fn is_namespaced(self) -> bool {
        matches!(self, Self::Service | Self::EndpointSlice)
    }
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
    /// A ServiceCIDR exists, like this.
    ServiceCidrApplied(ServiceCidr),
    /// A ServiceCIDR, by its name, doesn't exist.
    ServiceCidrDeleted(String),
    /// Cluster IPs are from these ranges, whatever ServiceCIDRs say.
    ServiceRanges(BTreeSet<Range>),
    /// This machine is like this.
    Host(Host),
    /// The agent reaches its API servers at these addresses and ports, by TCP: names of servers have been resolved.
    ApiServers(BTreeSet<(IpAddr, u16)>),
    /// Everything of this kind has been named at least once.
    Synced(Kind),
}

/// A Service.
///
/// Its addresses are such as can be a frontend's; [`decode`](crate::decode) leaves others out and says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.creationTimestamp`, seconds since the Unix epoch.
    pub created: Option<i64>,
    /// Cluster IPs: their families are the Service's. None for Services that are not balanced here: headless ones,
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
    /// `loadBalancerSourceRanges`; `None`: of another type than LoadBalancer, or there are none.
    pub source_ranges: Option<SourceRanges>,
    /// `healthCheckNodePort`; `None`: of another type than LoadBalancer, another policy than Local, or there is none.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty for the only port of a Service.
    pub name: Arc<str>,
    /// The frontends' port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port at every node; types NodePort and LoadBalancer alone have it.
    pub node_port: Option<u16>,
    /// The number that endpoints have for it; `None`: they have a name for it, and their own numbers.
    pub target_port: Option<u16>,
}

/// Who of a Service's backends gets the traffic of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// All of them.
    #[default]
    Cluster,
    /// Those on that node.
    Local,
}

/// Who may use a Service's load balancer addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRanges {
    /// The ranges that could be read.
    pub ranges: BTreeSet<Range>,
    /// Whether there is one that could not: it admits nobody, of either family.
    pub unreadable: bool,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Matches [`ServicePort::name`].
    pub name: Arc<str>,
    /// The backends' port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its first address; the API gives others no meaning.
    pub address: IpAddr,
    /// Whether it takes traffic.
    pub ready: bool,
    /// Whether it can be served, ready or not.
    pub serving: bool,
    /// Whether it is on its way out.
    pub terminating: bool,
    /// The node it runs on, if it says.
    pub node: Option<Arc<str>>,
    /// Nodes whose traffic it shall get before others (`hints.forNodes`, KEP-4444).
    pub for_nodes: NameSet,
    /// Zones whose traffic it shall get before others (`hints.forZones`, KEP-2433).
    pub for_zones: NameSet,
}

impl Endpoint {
    /// One that takes traffic, and says nothing else.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// The IP addresses of `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// Those of them that other nodes reach it at (`InternalIP`), in their order.
    pub internal: Vec<IpAddr>,
    /// Where its pods' addresses are from (`spec.podCIDRs`); none where something else than Nodes says so.
    pub pods: Vec<Range>,
}

impl Node {
    /// The addresses of clients that it has: its own and its pods'. IPv4 addresses that are written as IPv6 ones are
    /// left out: in the maps they would be others.
    pub fn clients(&self) -> impl Iterator<Item = Range> {
        let own = self.addresses.iter();
        let own = own.filter(|address| !matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()));
        own.map(|&address| Range::of(address))
            .chain(self.pods.iter().copied())
    }
}

/// A ServiceCIDR (networking.k8s.io/v1, KEP-1880).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceCidr {
    /// Its name.
    pub name: String,
    /// Where cluster IPs are from (`spec.cidrs`).
    pub ranges: Vec<Range>,
}

/// What this machine is, which no API says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Addresses of its devices, loopback excepted.
    pub addresses: BTreeSet<IpAddr>,
    /// The agent's own probe.
    pub probe: Option<Probe>,
}

/// A frontend that leads to the agent itself, by which it sees whether the programs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What the agent connects to.
    pub frontend: TransportAddress,
    /// Where it listens.
    pub backend: TransportAddress,
}
