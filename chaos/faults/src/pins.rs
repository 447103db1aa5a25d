//! Pins that the agent does not see.

use std::sync::Arc;

use lab::cluster::{Cluster, Stop};

use crate::{
    FaultError,
    agent::{heal_in_drop, on_host},
};

/// Where a node has its bpffs.
const BPFFS: &str = "/sys/fs/bpf";

/// A new bpffs, mounted over the node's: what is pinned stays pinned, and nobody finds it.
///
/// Drop takes it away, if it happens in a multi-threaded runtime, and starts the agent again, which then finds its pins.
#[must_use = "the pins are seen again when this is dropped"]
pub struct HiddenPins {
    cluster: Arc<dyn Cluster>,
    node: String,
    hidden: bool,
}

impl HiddenPins {
    /// Hides them. The node's agent must be down.
    pub async fn hide(cluster: Arc<dyn Cluster>, node: &str) -> Result<Self, FaultError> {
        // Before the attempt: one that is broken off halfway must heal too.
        let fault = Self {
            cluster,
            node: node.to_owned(),
            hidden: true,
        };
        on_host(&*fault.cluster, node, &["mount", "-t", "bpf", "bpf", BPFFS]).await?;
        Ok(fault)
    }

    /// Heals: stops the agent, takes the new bpffs away with all that is pinned there, and starts the agent.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.uncover().await?;
        self.hidden = false;
        Ok(())
    }

    /// An agent that runs holds what it has opened there.
    async fn uncover(&self) -> Result<(), FaultError> {
        self.cluster.stop_agent(&self.node, Stop::Term).await?;
        let gone = on_host(&*self.cluster, &self.node, &["umount", BPFFS]).await;
        // Whatever became of it.
        self.cluster.start_agent(&self.node).await?;
        gone.map(drop)
    }
}

impl Drop for HiddenPins {
    fn drop(&mut self) {
        if self.hidden {
            heal_in_drop(&format!("the pins of {} stay hidden", self.node), self.uncover());
        }
    }
}
