//! Address families, for each of which a case runs by itself.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{Capability, Description};

/// An IP family, as Services name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
}

impl Family {
    /// Whether an address is of this family.
    #[must_use]
    pub fn has(self, address: &IpAddr) -> bool {
        address.is_ipv6() == (self == Self::IPv6)
    }

    /// The first address of this family.
    pub fn first_of<'a>(self, addresses: impl IntoIterator<Item = &'a IpAddr>) -> Option<IpAddr> {
        let mut addresses = addresses.into_iter();
        addresses.find(|address| self.has(address)).copied()
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Description {
    /// Families that the cluster has.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        [(Family::IPv4, Capability::Ipv4), (Family::IPv6, Capability::Ipv6)]
            .into_iter()
            .filter(|(_, capability)| self.capabilities.contains(capability))
            .map(|(family, _)| family)
            .collect()
    }

    /// Names and addresses of the nodes that have an address of a family.
    #[must_use]
    pub fn nodes_of(&self, family: Family) -> Vec<(String, IpAddr)> {
        let nodes = self.nodes.iter();
        nodes
            .filter_map(|node| Some((node.name.clone(), family.first_of(&node.addresses)?)))
            .collect()
    }
}
