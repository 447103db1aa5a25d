//! Where a packet is seen.

use crate::Scope;

/// Where a packet program is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// What enters the node from the network.
    NodeIngress,
    /// What leaves the node for the network.
    NodeEgress,
    /// What enters the node from a pod.
    PodIngress,
    /// What leaves the node for a pod.
    PodEgress,
}

impl Hook {
    /// Whether packets come into the node's stack here.
    #[inline(always)]
    pub const fn inbound(self) -> bool {
        matches!(self, Self::NodeIngress | Self::PodIngress)
    }

    /// Whether connections are opened here, and packets rejected and dropped.
    #[inline(always)]
    pub const fn opens(self) -> bool {
        !matches!(self, Self::PodEgress)
    }

    /// Where the clients are whose packets are seen here.
    #[inline(always)]
    pub const fn scope(self) -> Scope {
        match self {
            Self::NodeIngress => Scope::External,
            Self::NodeEgress | Self::PodIngress | Self::PodEgress => Scope::Internal,
        }
    }
}
