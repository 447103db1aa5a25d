//! Where clients send to, and what is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lb_abi::Address;

use crate::test_node::{V4, V6};

/// An address of either family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(
    missing_docs,
    reason = "each is the address of that name of `test_node::Addresses`, or describes it"
)]
pub enum NamedAddress {
    ClusterIp,
    ClusterIpAlso,
    LoadBalancer,
    /// No device has it, and no service.
    Nowhere,
    /// The node's.
    Node,
    PodA,
    PodB,
    Remote,
    Loopback,
    /// 127.0.0.7, which a stack has, and ADDRESSES has not; of IPv6 there is but one.
    LoopbackAlso,
    Unspecified,
}

/// Where a server of UDP listens, and one of TCP.
pub(super) const SERVED: u16 = 8080;
/// Where a server of UDP listens, and none of TCP: such a backend resets.
pub(super) const DEAD: u16 = 8081;

impl NamedAddress {
    pub(super) const ALL: [Self; 11] = [
        Self::ClusterIp,
        Self::ClusterIpAlso,
        Self::LoadBalancer,
        Self::Nowhere,
        Self::Node,
        Self::PodA,
        Self::PodB,
        Self::Remote,
        Self::Loopback,
        Self::LoopbackAlso,
        Self::Unspecified,
    ];

    /// Where servers are: each of these addresses is a device's.
    pub(super) const SERVERS: [Self; 5] = [Self::Node, Self::PodA, Self::PodB, Self::Remote, Self::Loopback];

    /// The address.
    pub(super) fn ip(self, v4: bool) -> IpAddr {
        let at = if v4 { &V4 } else { &V6 };
        match self {
            Self::ClusterIp => at.cluster_ip,
            Self::ClusterIpAlso => at.cluster_ip_also,
            Self::LoadBalancer => at.load_balancer,
            Self::Nowhere => at.nowhere,
            Self::Node => at.node,
            Self::PodA => at.pod_a,
            Self::PodB => at.pod_b,
            Self::Remote => at.remote,
            Self::LoopbackAlso if v4 => Ipv4Addr::new(127, 0, 0, 7).into(),
            Self::Loopback | Self::LoopbackAlso if v4 => Ipv4Addr::LOCALHOST.into(),
            Self::Loopback | Self::LoopbackAlso => Ipv6Addr::LOCALHOST.into(),
            Self::Unspecified if v4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::Unspecified => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// As maps have it.
    pub(super) fn address(self, v4: bool) -> Address {
        self.ip(v4).into()
    }
}

/// Whether a stack of the two namespaces has an address.
pub(super) fn is_local(address: Address) -> bool {
    let served = NamedAddress::SERVERS
        .iter()
        .any(|place| [true, false].map(|v4| place.address(v4)).contains(&address));
    served || address.is_loopback()
}

/// Whether a server listens there.
pub(super) fn is_served(address: Address, port: u16, tcp: bool) -> bool {
    let here = NamedAddress::SERVERS
        .iter()
        .any(|place| [true, false].map(|v4| place.address(v4)).contains(&address));
    here && (port == SERVED || (port == DEAD && !tcp))
}
