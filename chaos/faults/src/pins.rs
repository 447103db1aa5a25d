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
/// Drop takes it away, if it happens in a multi-threaded runtime. An agent that runs then must be started again to find
/// its own pins: [`HiddenPins::heal`] does it.
#[must_use = "the pins are seen again when this is dropped"]
pub struct HiddenPins {
    cluster: Arc<dyn Cluster>,
    node: String,
    hidden: bool,
}

impl HiddenPins {
    /// Hides them. The node's agent must be down.
    pub async fn hide(cluster: Arc<dyn Cluster>, node: &str) -> Result<Self, FaultError> {
        on_host(&*cluster, node, &["mount", "-t", "bpf", "bpf", BPFFS]).await?;
        Ok(Self {
            cluster,
            node: node.to_owned(),
            hidden: true,
        })
    }

    /// Heals: stops the agent, takes the new bpffs away with all that is pinned there, and starts the agent.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.cluster.stop_agent(&self.node, Stop::Term).await?;
        on_host(&*self.cluster, &self.node, &["umount", BPFFS]).await?;
        self.hidden = false;
        Ok(self.cluster.start_agent(&self.node).await?)
    }
}

impl Drop for HiddenPins {
    fn drop(&mut self) {
        if self.hidden {
            heal_in_drop(&format!("the pins of {} stay hidden", self.node), async {
                on_host(&*self.cluster, &self.node, &["umount", BPFFS]).await?;
                Ok(())
            });
        }
    }
}
