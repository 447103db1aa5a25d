//! A node that loses its power: from one moment to the next nothing of it sends, answers or runs.
//!
//! ```text
//!  begin: link of the node down, at the bridge ─▶ its cgroup frozen: agent, pods, everything started on it
//!  heal:  its cgroup thawed ─▶ link up
//! ```
//!
//! Its processes are not ended: one that ends tells its peers (FIN, RST), and the kubelet tells the API. So the API keeps
//! what it had of the node, and a pod that is deleted meanwhile stays, terminating, for its grace period. When the power
//! is back the node goes on where it was.

use std::{sync::Arc, time::Duration};

use cluster::{ClusterError, LONGEST};

use super::{
    LabError,
    underlay::{Node, Underlay},
};

/// A node without power.
#[must_use = "it gets its power back by `heal` alone"]
pub(super) struct PowerLoss {
    node: Arc<Node>,
    underlay: Arc<Underlay>,
}

impl PowerLoss {
    /// Takes the power of a node, which nothing on the network sees but by its silence.
    pub(super) async fn begin(
        node: Arc<Node>,
        underlay: Arc<Underlay>,
        lasts: Duration,
    ) -> Result<Self, ClusterError> {
        let what = || format!("take the power of {}", node.name);
        if lasts > LONGEST {
            let why = format!("expected at most {LONGEST:?}, found {lasts:?}");
            return Err(ClusterError::failed(what(), why));
        }
        if node.cgroup().is_frozen() {
            return Err(ClusterError::failed(
                what(),
                "it has none: end the fault that took it first",
            ));
        }
        // The link first: nothing that its processes do until they are frozen is seen.
        underlay
            .disconnect(&node.name)
            .await
            .map_err(|error| ClusterError::failed(what(), &error))?;
        if let Err(error) = node.cgroup().freeze(true) {
            let error = ClusterError::failed(what(), &error);
            drop(underlay.connect(&node.name).await);
            return Err(error);
        }
        Ok(Self { node, underlay })
    }

    /// Gives it its power back.
    pub(super) async fn heal(self) -> Result<(), ClusterError> {
        let Self { node, underlay } = self;
        let failed =
            |error: LabError| ClusterError::failed(format!("give {} its power back", node.name), &error);
        node.cgroup().freeze(false).map_err(failed)?;
        underlay.connect(&node.name).await.map_err(failed)
    }
}
