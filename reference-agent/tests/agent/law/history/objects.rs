//! The names, addresses and ports that histories are about, few enough to meet each other.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use reference_agent::{
    endpoint_address::{Family, Range},
    model::{Endpoint, Host, Node, Policy, Probe, Service, Slice, SourceRanges},
    testing::objects::{address, name, service, slice},
};

/// Names that are prefixes of each other, alone, with their namespaces and across the border between the two.
pub(crate) const SERVICES: [&str; 7] = ["t/t", "t/t-ext", "t/t0", "t-ext/t", "a/b-c", "a-b/c", "a/b"];
/// One is shared, as two watches may have it; two are in both families; one Service has none.
pub(crate) const CLUSTER_IPS: [&str; 8] = [
    "10.96.0.1",
    "10.96.0.2",
    "10.96.0.3",
    "10.96.0.4",
    "10.96.0.1,fd00:96::1",
    "fd00:96::2,10.96.0.2",
    "fd00:96::1",
    "",
];
/// Node ports are shared, too.
pub(crate) const SERVICE_PORTS: [&[&str]; 7] = [
    &["TCP 80"],
    &["TCP 80 http @30080", "UDP 80 dns @30080"],
    &["TCP 80 http @30081", "TCP 81 admin @30080"],
    &["UDP 80 dns"],
    &["TCP 443 https", "SCTP 80 http"],
    &["TCP 81 http @30080"],
    &[],
];
/// Load balancers' addresses: shared, one a node's, one a cluster IP, one of the other family.
const LOAD_BALANCERS: [&str; 5] = [
    "198.51.100.1",
    "198.51.100.2",
    "10.1.0.7",
    "10.96.0.2",
    "2001:db8::1",
];
/// External IPs: some of them load balancers' and nodes' and cluster IPs, too.
const EXTERNAL: [&str; 5] = [
    "198.51.100.1",
    "198.51.100.9",
    "10.1.0.7",
    "10.96.0.1",
    "2001:db8::1",
];
/// Source ranges; `?`: one that can't be read.
pub(crate) const RANGES: [&[&str]; 6] = [
    &[],
    &[],
    &["192.0.2.0/24"],
    &["2001:db8::/32"],
    &["192.0.2.0/24", "203.0.113.7/32", "2001:db8::/32"],
    &["192.0.2.0/24", "?"],
];
pub(crate) const SLICES: [&str; 7] = ["t/t", "t/t-ext", "t/s", "a/b-c", "a-b/c", "t-ext/t", "t/s2"];
pub(crate) const OWNERS: [&str; 7] = ["t", "t-ext", "t0", "b-c", "c", "b", ""];
pub(crate) const SLICE_PORTS: [&[&str]; 6] = [
    &["TCP 80"],
    &["TCP 8080 http", "UDP 5353 dns"],
    &["TCP 9090 http"],
    &["TCP 81 admin", "TCP 80 http", "SCTP 80 http"],
    &["TCP 443 https", "TCP 8080 http"],
    &[],
];
/// Backends, one of them a cluster IP.
pub(crate) const ENDPOINTS: [&str; 8] = [
    "1.1.1.1",
    "1.1.1.2",
    "1.1.1.3",
    "1.1.1.4",
    "1.1.1.5",
    "10.96.0.2",
    "fd00::1",
    "fd00::2",
];
pub(crate) const NODES: [&str; 3] = ["here", "here-2", "there"];
pub(crate) const ZONES: [&str; 2] = ["a", "b"];
const NODE_ADDRESSES: [&str; 3] = ["10.1.0.7", "198.51.100.2", "2001:db8::1"];
/// Networks of pods; one of them is a Node's address, too.
const PODS: [&str; 3] = ["10.244.1.0/24", "fd00:244:1::/64", "10.1.0.7/32"];
/// This machine's; one of them a load balancer's, one a cluster IP.
const HOST: [&str; 4] = ["10.1.0.7", "198.51.100.1", "10.96.0.3", "fd00:1::1"];
/// Where the agent reaches API servers; at last a node port of this machine, or of another Node.
pub(crate) const API_SERVERS: [&[&str]; 4] = [
    &[],
    &["10.96.0.1:80"],
    &["198.51.100.1:80", "[fd00:96::1]:80"],
    &["10.1.0.7:30080"],
];

/// One of them.
pub(crate) fn api_servers(which: usize) -> BTreeSet<(IpAddr, u16)> {
    let addresses = API_SERVERS[which].iter();
    let addresses = addresses.map(|text| text.parse::<SocketAddr>().expect("address:port"));
    addresses.map(|one| (one.ip(), one.port())).collect()
}

/// A Service by numbers, which shrink.
#[derive(Clone, Debug)]
pub(crate) struct ServiceShape {
    pub(crate) name: usize,
    pub(crate) ips: usize,
    pub(crate) ports: usize,
    pub(crate) created: Option<i64>,
    pub(crate) load_balancer: u8,
    pub(crate) external: u8,
    /// 1: external policy Local, 2: internal policy Local, 4: affinity, 8: another time limit of it, 16: health check.
    pub(crate) flags: u8,
    pub(crate) ranges: usize,
}

/// An endpoint by numbers.
#[derive(Clone, Debug)]
pub(crate) struct EndpointShape {
    pub(crate) address: usize,
    /// 0: ready, 1: not, 2: terminating and serving, 3: terminating.
    pub(crate) condition: u8,
    /// 0: none, otherwise one of [`NODES`].
    pub(crate) node: u8,
    /// Bits of [`ZONES`].
    pub(crate) zones: u8,
    /// Bits of [`NODES`].
    pub(crate) nodes: u8,
}

/// A slice by numbers.
#[derive(Clone, Debug)]
pub(crate) struct SliceShape {
    pub(crate) name: usize,
    pub(crate) owner: usize,
    pub(crate) ports: usize,
    pub(crate) endpoints: Vec<EndpointShape>,
}

/// A Node by numbers.
#[derive(Clone, Debug)]
pub(crate) struct NodeShape {
    pub(crate) name: usize,
    pub(crate) zone: Option<usize>,
    pub(crate) addresses: u8,
    /// Bits of [`PODS`].
    pub(crate) pods: u8,
}

fn chosen<'a>(of: &'a [&'a str], bits: u8) -> impl Iterator<Item = &'a str> {
    (0..)
        .zip(of)
        .filter(move |(bit, _)| bits & (1 << bit) != 0)
        .map(|(_, one)| *one)
}

fn ips<'a>(of: &'a [&'a str], bits: u8) -> impl Iterator<Item = IpAddr> + 'a {
    chosen(of, bits).map(|text| text.parse().expect("an address"))
}

impl ServiceShape {
    /// The Service, as decoding makes it: nothing of a family that it does not have, nothing of another type.
    pub(crate) fn service(&self) -> Service {
        let plain = service(
            SERVICES[self.name],
            CLUSTER_IPS[self.ips],
            SERVICE_PORTS[self.ports],
        );
        let families: BTreeSet<_> = plain.cluster_ips.iter().map(|ip| Family::of(*ip)).collect();
        let has = |ip: &IpAddr| families.contains(&Family::of(*ip));
        let policy = |bit: u8| match self.flags & bit != 0 {
            true => Policy::Local,
            false => Policy::Cluster,
        };
        let is_load_balancer = self.load_balancer != 0 || RANGES[self.ranges].len() > 1;
        let external_policy = policy(1);
        let health = self.flags & 16 != 0 && is_load_balancer && external_policy == Policy::Local;
        let ranges = RANGES[self.ranges];
        Service {
            created: self.created,
            load_balancer_ips: ips(&LOAD_BALANCERS, self.load_balancer).filter(has).collect(),
            external_ips: ips(&EXTERNAL, self.external).filter(has).collect(),
            external_policy,
            internal_policy: policy(2),
            affinity_seconds: match (self.flags & 4, self.flags & 8) {
                (0, _) => 0,
                (_, 0) => 10800,
                _ => 60,
            },
            source_ranges: (is_load_balancer && !ranges.is_empty()).then(|| SourceRanges {
                ranges: ranges.iter().filter_map(|text| range(text)).collect(),
                unreadable: ranges.contains(&"?"),
            }),
            health_check_port: health.then_some(32000),
            ..plain
        }
    }
}

fn range(text: &str) -> Option<Range> {
    let (address, length) = text.split_once('/')?;
    Range::new(address.parse().ok()?, length.parse().ok()?)
}

impl EndpointShape {
    fn endpoint(&self) -> Endpoint {
        let node = usize::from(self.node).checked_sub(1);
        Endpoint {
            ready: self.condition == 0,
            serving: matches!(self.condition, 0 | 2),
            terminating: self.condition >= 2,
            node: node.map(|node| NODES[node].into()),
            for_zones: chosen(&ZONES, self.zones).collect(),
            for_nodes: chosen(&NODES, self.nodes).collect(),
            ..Endpoint::new(ENDPOINTS[self.address].parse().expect("an address"))
        }
    }
}

impl SliceShape {
    pub(crate) fn slice(&self) -> Slice {
        let mut made = slice(
            SLICES[self.name],
            OWNERS[self.owner],
            SLICE_PORTS[self.ports],
            &[],
        );
        made.endpoints = self.endpoints.iter().map(EndpointShape::endpoint).collect();
        made
    }
}

impl NodeShape {
    pub(crate) fn node(&self) -> Node {
        Node {
            name: NODES[self.name].to_owned(),
            zone: self.zone.map(|zone| ZONES[zone].to_owned()),
            addresses: ips(&NODE_ADDRESSES, self.addresses).collect(),
            internal: ips(&NODE_ADDRESSES, self.addresses).collect(),
            pods: chosen(&PODS, self.pods).filter_map(range).collect(),
        }
    }
}

/// This machine.
pub(crate) fn host(addresses: u8, probe: bool) -> Host {
    Host {
        addresses: ips(&HOST, addresses).collect(),
        probe: probe.then(|| Probe {
            frontend: address("TCP 192.0.0.8:9"),
            backend: address("TCP 10.1.0.7:9000"),
        }),
    }
}

/// Names of objects that a step is about.
pub(crate) fn named(names: &[&str], which: usize) -> reference_agent::names::ObjectName {
    name(names[which])
}
