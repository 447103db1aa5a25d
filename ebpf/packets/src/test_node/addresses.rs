//! The addresses of the [`TestNode`](super::TestNode), in both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of one family.
///
/// What [`TestNode`](super::TestNode) knows of each stands beside it; addresses without a device or a route are there to be
/// frontends, which no stack needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The node's, at its uplink: [`Config::node_v4`](lb_abi::Config::node_v4) or its IPv6 counterpart.
    pub node: IpAddr,
    /// Another one of the node's, at its uplink.
    pub node_also: IpAddr,
    /// The router at the uplink, whose link address is known.
    pub gateway: IpAddr,
    /// The next node, at the uplink, whose link address is not known yet: the next hop to its pods.
    pub next_node: IpAddr,
    /// A client outside, behind the router.
    pub client: IpAddr,
    /// Another client outside, in another network behind the router.
    pub stranger: IpAddr,
    /// A pod of this node, behind [`POD_A`](super::POD_A).
    pub pod_a: IpAddr,
    /// A pod of this node, behind [`POD_B`](super::POD_B).
    pub pod_b: IpAddr,
    /// A pod of the next node.
    pub remote: IpAddr,
    /// Another pod of that node.
    pub remote_also: IpAddr,
    /// A pod behind the next node, the way to which takes no more than [`SMALL_MTU`](super::SMALL_MTU).
    pub narrow: IpAddr,
    /// An address for which the node has an unreachable route.
    pub unreachable: IpAddr,
    /// An address for which the node has no route.
    pub nowhere: IpAddr,
    /// A ClusterIP: no route.
    pub cluster_ip: IpAddr,
    /// Another ClusterIP: no route.
    pub cluster_ip_also: IpAddr,
    /// A load balancer's IP: no route.
    pub load_balancer: IpAddr,
}

/// The IPv4 addresses.
pub const V4: Addresses = Addresses {
    node: v4(192, 0, 2, 1),
    node_also: v4(192, 0, 2, 9),
    gateway: v4(192, 0, 2, 254),
    next_node: v4(192, 0, 2, 2),
    client: v4(198, 51, 100, 7),
    stranger: v4(198, 51, 101, 8),
    pod_a: v4(10, 244, 1, 2),
    pod_b: v4(10, 244, 1, 3),
    remote: v4(10, 244, 2, 2),
    remote_also: v4(10, 244, 2, 3),
    narrow: v4(10, 244, 3, 2),
    unreachable: v4(10, 244, 4, 2),
    nowhere: v4(10, 244, 5, 2),
    cluster_ip: v4(10, 96, 0, 10),
    cluster_ip_also: v4(10, 96, 0, 11),
    load_balancer: v4(203, 0, 113, 10),
};

/// The IPv6 addresses.
pub const V6: Addresses = Addresses {
    node: v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    node_also: v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9]),
    gateway: v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe]),
    next_node: v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]),
    client: v6([0x2001, 0xdb8, 0xc, 0x64, 0, 0, 0, 7]),
    stranger: v6([0x2001, 0xdb8, 0xc, 0x65, 0, 0, 0, 8]),
    pod_a: v6([0xfd00, 0x244, 1, 0, 0, 0, 0, 2]),
    pod_b: v6([0xfd00, 0x244, 1, 0, 0, 0, 0, 3]),
    remote: v6([0xfd00, 0x244, 2, 0, 0, 0, 0, 2]),
    remote_also: v6([0xfd00, 0x244, 2, 0, 0, 0, 0, 3]),
    narrow: v6([0xfd00, 0x244, 3, 0, 0, 0, 0, 2]),
    unreachable: v6([0xfd00, 0x244, 4, 0, 0, 0, 0, 2]),
    nowhere: v6([0xfd00, 0x244, 5, 0, 0, 0, 0, 2]),
    cluster_ip: v6([0xfd00, 0x96, 0, 0, 0, 0, 0, 0x10]),
    cluster_ip_also: v6([0xfd00, 0x96, 0, 0, 0, 0, 0, 0x11]),
    load_balancer: v6([0x2001, 0xdb8, 0x1b, 0, 0, 0, 0, 0x10]),
};

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}
