//! Addresses of a lab. Every lab has the same: each has its own namespaces, so they never meet, on no host.
//!
//! ```text
//!  172.30.0.1     underlay bridge: everybody's default gateway, which forwards nothing
//!  172.30.0.2     API server
//!  172.30.0.10    outside client
//!  172.30.0.101 … nodes                  10.244.N.0/24  pods of node N (10.244.N.1: their gateway)
//!  10.96.0.0/16   ClusterIPs             (both as kubeadm's examples have them)
//! ```

use std::net::Ipv4Addr;

/// The underlay's prefix length.
pub(super) const UNDERLAY_PREFIX: u8 = 24;
/// The bridge: default gateway of everybody.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 1);
/// The API server on the underlay.
pub(super) const API_SERVER: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 2);
/// Its port there.
pub(super) const API_SERVER_PORT: u16 = 6443;
/// The outside client.
pub(super) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 10);
/// Where ClusterIPs come from.
pub(super) const SERVICE_CIDR: &str = "10.96.0.0/16";
/// The first ClusterIP: `default/kubernetes`.
pub(super) const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// A node's place in the address plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeAddresses {
    number: u8,
}

impl NodeAddresses {
    /// Prefix length of a node's pod range.
    pub(super) const POD_PREFIX: u8 = 24;

    /// The addresses of node 1, 2 …, up to [`LabConfig::MOST_NODES`](super::LabConfig::MOST_NODES).
    pub(super) fn new(number: u8) -> Self {
        Self { number }
    }

    /// Its name in the API.
    pub(super) fn name(self) -> String {
        format!("node{}", self.number)
    }

    /// Its InternalIP.
    pub(super) fn internal(self) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, 0, 100 + self.number)
    }

    /// Network address of its pod range.
    pub(super) fn pod_network(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 244, self.number, 0)
    }

    /// Its pod range as the API has it.
    pub(super) fn pod_cidr(self) -> String {
        format!("{}/{}", self.pod_network(), Self::POD_PREFIX)
    }

    /// The gateway of its pods: the address of the host's end of each of their links.
    pub(super) fn pod_gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 244, self.number, 1)
    }

    /// Addresses for pods, in the order in which they are given out.
    pub(super) fn pods(self) -> impl Iterator<Item = Ipv4Addr> {
        (2..=254).map(move |last| Ipv4Addr::new(10, 244, self.number, last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{super::LabConfig, *};

    #[test]
    fn no_address_is_given_twice() {
        let mut seen = HashSet::from([GATEWAY, API_SERVER, OUTSIDE, KUBERNETES_SERVICE]);
        for number in 1..=LabConfig::MOST_NODES {
            let node = NodeAddresses::new(number);
            for address in [node.internal(), node.pod_network(), node.pod_gateway()]
                .into_iter()
                .chain(node.pods())
            {
                assert!(seen.insert(address), "{address} of {}", node.name());
            }
        }
    }

    #[test]
    fn pods_live_in_their_nodes_range() {
        let node = NodeAddresses::new(7);
        assert_eq!(node.pod_cidr(), "10.244.7.0/24");
        assert!(
            node.pods()
                .all(|pod| pod.octets()[..3] == node.pod_network().octets()[..3])
        );
    }
}
