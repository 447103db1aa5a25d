//! An agent that is down.

use std::{sync::Arc, time::Duration};

use lab::cluster::{Cluster, Stop};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::FaultError;

/// How long a drop waits for the start.
const START: Duration = Duration::from_secs(30);

/// The agent of a node, stopped and kept from starting again.
///
/// Drop starts it, if it happens in a multi-threaded runtime. Nobody on the node knows when it should be up again,
/// so it does not expire: whoever runs a case looks for agents that are down when its process has died.
#[must_use = "the agent starts again when this is dropped"]
pub struct StoppedAgent {
    cluster: Arc<dyn Cluster>,
    node: String,
    is_down: bool,
}

impl StoppedAgent {
    /// Stops it.
    pub async fn stop(cluster: Arc<dyn Cluster>, node: &str, how: Stop) -> Result<Self, FaultError> {
        // Before the attempt: one that fails halfway must heal too.
        let fault = Self {
            cluster,
            node: node.to_owned(),
            is_down: true,
        };
        fault.cluster.stop_agent(node, how).await?;
        Ok(fault)
    }

    /// Heals: starts it again.
    pub async fn start(mut self) -> Result<(), FaultError> {
        self.cluster.start_agent(&self.node).await?;
        self.is_down = false;
        Ok(())
    }
}

impl Drop for StoppedAgent {
    fn drop(&mut self) {
        if !self.is_down {
            return;
        }
        let node = &self.node;
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                let start = tokio::time::timeout(START, self.cluster.start_agent(node));
                let done = tokio::task::block_in_place(|| handle.block_on(start));
                match done {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!("the agent of {node} stays down: {error}"),
                    Err(_) => tracing::error!("the agent of {node} has not started within {START:?}"),
                }
            }
            _ => tracing::error!("the agent of {node} stays down: there is no runtime to start it in"),
        }
    }
}
