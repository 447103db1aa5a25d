//! Address families, each of which a case runs for by itself.

use std::{fmt, net::IpAddr};

use cluster::{Capability, Description};
use serde::{Deserialize, Serialize};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
}

impl Family {
    /// The first address of this family.
    pub(crate) fn first_of<'a>(self, addresses: impl IntoIterator<Item = &'a IpAddr>) -> Option<IpAddr> {
        let mut addresses = addresses.into_iter();
        addresses.find(|address| self.has(address)).copied()
    }

    /// Names and addresses of the nodes that have one of this family.
    pub(crate) fn of_nodes(self, cluster: &Description) -> Vec<(String, IpAddr)> {
        let nodes = cluster.nodes.iter();
        nodes
            .filter_map(|node| Some((node.name.clone(), self.first_of(&node.addresses)?)))
            .collect()
    }

    /// Whether an address is of this family.
    pub(crate) fn has(self, address: &IpAddr) -> bool {
        address.is_ipv6() == (self == Self::IPv6)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Families that a cluster has.
#[must_use]
pub fn families(cluster: &Description) -> Vec<Family> {
    [(Family::IPv4, Capability::Ipv4), (Family::IPv6, Capability::Ipv6)]
        .into_iter()
        .filter(|(_, capability)| cluster.capabilities.contains(capability))
        .map(|(family, _)| family)
        .collect()
}
