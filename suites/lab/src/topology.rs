//! Addresses of a lab. All labs use the same ones: each has its own namespaces, so they never conflict.
//!
//! ```text
//!  172.30.0.1       fd00:30::1        underlay bridge: default gateway of all machines, and router to load balancers
//!  172.30.0.2 …     fd00:30::2 …      API servers
//!  172.30.0.9       fd00:30::9        the front of the API servers, a load balancer
//!  172.30.0.10      fd00:30::a        outside client
//!  172.30.2.10      fd00:32::a        outside client, behind a narrow hop
//!  172.30.0.101 …   fd00:30::65 …     nodes
//!  10.244.N.0/24    fd00:244:N::/64   pods of node N; the first address is their gateway
//!  10.96.0.0/16     fd00:96::/112     ClusterIPs (IPv4 as in kubeadm's examples)
//!  172.30.1.0/24    fd00:31::/120     addresses of load balancers
//! ```
//!
//! A lab has the left column, the right one, or both ([`IpFamilies`]); then IPv4 comes first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::IpFamilies;

/// The API server's port on the underlay.
pub(super) const API_SERVER_PORT: u16 = 6443;

/// API servers of one lab, at most.
pub(super) const MOST_API_SERVERS: u8 = 5;

/// Numbers of a node's pods, in order of use; 1 is their gateway.
pub(super) const PODS: std::ops::RangeInclusive<u8> = 2..=254;

/// Zones of the nodes in turn: with three nodes, two share a zone.
const ZONES: [&str; 2] = ["zone-a", "zone-b"];

impl IpFamilies {
    /// The bridge: default gateway of all machines.
    pub(super) fn gateway(self) -> Vec<IpAddr> {
        self.underlay(1)
    }

    /// Addresses of an API server on the underlay, by its number from 1 to [`MOST_API_SERVERS`].
    pub(super) fn api_server(self, number: u8) -> Vec<IpAddr> {
        self.underlay(1 + number)
    }

    /// The load balancer in front of the API servers.
    pub(super) fn api_front(self) -> Vec<IpAddr> {
        self.underlay(9)
    }

    /// The outside client.
    pub(super) fn outside(self) -> Vec<IpAddr> {
        self.underlay(10)
    }

    /// The outside client, where it is behind a narrow hop.
    pub(super) fn behind_hop(self) -> Vec<IpAddr> {
        self.each(
            || IpAddr::V4(Ipv4Addr::new(172, 30, 2, 10)),
            || IpAddr::V6(Ipv6Addr::new(0xfd00, 0x32, 0, 0, 0, 0, 0, 10)),
        )
    }

    /// Ranges of ClusterIPs.
    pub(super) fn services(self) -> Vec<IpNet> {
        self.each(
            || IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 16)),
            || {
                IpNet::V6(Ipv6Net::new_assert(
                    Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 0),
                    112,
                ))
            },
        )
    }

    /// Ranges of addresses of Services of type LoadBalancer.
    pub(super) fn load_balancers(self) -> Vec<IpNet> {
        self.each(
            || IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(172, 30, 1, 0), 24)),
            || {
                IpNet::V6(Ipv6Net::new_assert(
                    Ipv6Addr::new(0xfd00, 0x31, 0, 0, 0, 0, 0, 0),
                    120,
                ))
            },
        )
    }

    /// The first ClusterIP of each range; `default/kubernetes` has the first family's.
    pub(super) fn kubernetes_service(self) -> Vec<IpAddr> {
        self.each(
            || IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)),
            || IpAddr::V6(Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 1)),
        )
    }

    fn underlay(self, last: u8) -> Vec<IpAddr> {
        self.each(
            || IpAddr::V4(Ipv4Addr::new(172, 30, 0, last)),
            || IpAddr::V6(Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, last.into())),
        )
    }

    fn each<T>(self, ipv4: impl FnOnce() -> T, ipv6: impl FnOnce() -> T) -> Vec<T> {
        let mut all = Vec::new();
        if self.has_ipv4() {
            all.push(ipv4());
        }
        if self.has_ipv6() {
            all.push(ipv6());
        }
        all
    }
}

/// An address with the underlay's prefix length.
pub(super) fn on_underlay(address: IpAddr) -> IpNet {
    match address {
        IpAddr::V4(address) => Ipv4Net::new_assert(address, 24).into(),
        IpAddr::V6(address) => Ipv6Net::new_assert(address, 64).into(),
    }
}

/// The default route of an address's family.
pub fn everything(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => Ipv4Net::default().into(),
        IpAddr::V6(_) => Ipv6Net::default().into(),
    }
}

/// Addresses and zone of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeAddresses {
    number: u8,
    families: IpFamilies,
}

impl NodeAddresses {
    /// For node 1, 2 …, up to [`LabConfig::MOST_NODES`](super::LabConfig::MOST_NODES).
    pub(super) fn new(number: u8, families: IpFamilies) -> Self {
        Self { number, families }
    }

    pub(super) fn name(self) -> String {
        format!("node{}", self.number)
    }

    /// Number of the node, unique in the lab.
    pub(super) fn number(self) -> u8 {
        self.number
    }

    pub(super) fn zone(self) -> &'static str {
        ZONES[usize::from(self.number + 1) % ZONES.len()]
    }

    pub(super) fn families(self) -> IpFamilies {
        self.families
    }

    pub(super) fn internal(self) -> Vec<IpAddr> {
        self.families.underlay(100 + self.number)
    }

    pub(super) fn pod_networks(self) -> Vec<IpNet> {
        let of_range = |address: IpAddr| match address {
            IpAddr::V4(address) => IpNet::V4(Ipv4Net::new_assert(address, 24)),
            IpAddr::V6(address) => IpNet::V6(Ipv6Net::new_assert(address, 64)),
        };
        self.pod(0).into_iter().map(of_range).collect()
    }

    /// Its pod ranges as strings.
    pub(super) fn pod_cidrs(self) -> Vec<String> {
        self.pod_networks().iter().map(IpNet::to_string).collect()
    }

    /// Gateway of its pods: the addresses at the node's end of each link.
    pub(super) fn pod_gateway(self) -> Vec<IpAddr> {
        self.pod(1)
    }

    /// Addresses of a pod by its number, one of [`PODS`].
    pub(super) fn pod(self, number: u8) -> Vec<IpAddr> {
        self.families.each(
            || IpAddr::V4(Ipv4Addr::new(10, 244, self.number, number)),
            || {
                let node = u16::from(self.number);
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0x244, node, 0, 0, 0, 0, number.into()))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{super::LabConfig, *};

    #[test]
    fn no_address_is_given_twice() {
        let all = IpFamilies::Dual;
        let mut seen: HashSet<IpAddr> = HashSet::new();
        let servers = (1..=MOST_API_SERVERS).map(|number| all.api_server(number));
        let others = [
            all.gateway(),
            all.api_front(),
            all.outside(),
            all.behind_hop(),
            all.kubernetes_service(),
        ];
        for addresses in servers.chain(others) {
            assert_eq!(addresses.len(), 2, "one of each family: {addresses:?}");
            for address in addresses {
                assert!(seen.insert(address), "{address}");
            }
        }
        for number in 1..=LabConfig::MOST_NODES {
            let node = NodeAddresses::new(number, all);
            let networks = node.pod_networks().into_iter().map(|network| network.addr());
            let pods = PODS.flat_map(|pod| node.pod(pod));
            let own = node.internal().into_iter().chain(node.pod_gateway());
            for address in own.chain(networks).chain(pods) {
                assert!(seen.insert(address), "{address} of {}", node.name());
            }
        }
    }

    #[test]
    fn a_lab_of_one_family_has_addresses_of_that_one_only() {
        for (families, is_ipv4) in [(IpFamilies::Ipv4, true), (IpFamilies::Ipv6, false)] {
            let node = NodeAddresses::new(3, families);
            let all = [node.internal(), node.pod(9), families.gateway()].concat();
            assert_eq!(all.len(), 3);
            assert!(all.iter().all(|address| address.is_ipv4() == is_ipv4), "{all:?}");
        }
    }

    #[test]
    fn pods_live_in_their_nodes_ranges() {
        let node = NodeAddresses::new(7, IpFamilies::Dual);
        let networks = node.pod_networks();
        assert_eq!(node.pod_cidrs(), ["10.244.7.0/24", "fd00:244:7::/64"]);
        for pod in PODS {
            for (network, address) in networks.iter().zip(node.pod(pod)) {
                assert!(network.contains(&address), "{address}");
            }
        }
    }

    #[test]
    fn three_nodes_are_in_two_zones() {
        let zones = [1, 2, 3].map(|number| NodeAddresses::new(number, IpFamilies::Ipv4).zone());
        assert_eq!(zones, ["zone-a", "zone-b", "zone-a"]);
    }
}
