//! What an implementation has on a node that faults can use. It is looked up before a run, by the same means as in faults.

use std::time::Duration;

use cluster::{Capability, Cluster};

use crate::{
    FaultError, HeldProgram, LeftoverPackets, LeftoverPrograms, Refitted, Remains, packets::AtDevice,
};

/// Hooks at which leftover programs can mislead sockets.
const HOOKS: [&str; 10] = [
    "connect4",
    "connect6",
    "sendmsg4",
    "sendmsg6",
    "recvmsg4",
    "recvmsg6",
    "getpeername4",
    "getpeername6",
    "post_bind4",
    "post_bind6",
];

/// What was found on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Socket programs at the agent's cgroup.
    pub sockets: Vec<HeldProgram>,
    /// Pins of links that attach some of them.
    pub pinned_links: Vec<String>,
    /// Programs at devices, attached by TCX or as filters.
    pub packets: Vec<AtDevice>,
    /// Pins of maps that could be replaced.
    pub pinned_maps: Vec<String>,
    /// Everything that is counted.
    pub remains: Remains,
    /// What `remains` has in addition to the node before its agent was installed; all of it if that is not known.
    pub added: Remains,
}

impl Found {
    /// Looks at a node without changing it. Helpers end when they expire.
    ///
    /// # Errors
    /// The node can't be reached, or looked at.
    pub async fn on(cluster: &Cluster, node: &str, expires: Duration) -> Result<Self, FaultError> {
        let mut sockets = LeftoverPrograms::hold(cluster, node, &HOOKS, expires).await?;
        let packets = LeftoverPackets::hold(cluster, node, expires).await?;
        let remains = Remains::of(cluster, node).await?;
        let added = if cluster.describe().capabilities.contains(&Capability::Baseline) {
            remains.beyond(&Remains::before(cluster, node).await?)
        } else {
            remains.clone()
        };
        let Refitted(maps) = Refitted::would(cluster, node).await?;
        let found = Self {
            sockets: sockets.held().to_vec(),
            pinned_links: sockets.pinned().await?,
            packets: packets.held().to_vec(),
            pinned_maps: maps.into_iter().map(|(path, _)| path).collect(),
            remains,
            added,
        };
        sockets.heal().await?;
        packets.heal().await?;
        Ok(found)
    }

    /// Whether a program is at this hook of the agent's cgroup.
    #[must_use]
    pub fn is_at(&self, hook: &str) -> bool {
        self.sockets.iter().any(|program| program.hook == hook)
    }
}
