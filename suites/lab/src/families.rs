//! Address families of a lab.

use serde::{Deserialize, Serialize};

/// Address families of a lab: of its nodes, pods, Services, API server and outside client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpFamilies {
    /// IPv4 alone.
    #[default]
    Ipv4,
    /// IPv6 alone.
    Ipv6,
    /// Both; IPv4 is the primary one.
    Dual,
}

impl IpFamilies {
    /// Whether there is IPv4.
    #[must_use]
    pub fn has_ipv4(self) -> bool {
        self != Self::Ipv6
    }

    /// Whether there is IPv6.
    #[must_use]
    pub fn has_ipv6(self) -> bool {
        self != Self::Ipv4
    }
}
