//! An agent that is down.

use std::{sync::Arc, time::Duration};

use lab::cluster::{Cluster, Place, Stop};
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

    /// Takes everything off the node's bpffs, as when it was a container's own and went with it: what only pins kept is
    /// gone, what is attached or held otherwise goes on with its maps as they are. (An agent's own clean-up may see to
    /// it that programs that somebody holds do nothing any more.)
    pub async fn lose_pins(&self) -> Result<(), FaultError> {
        // Files with a dot are the kernel's own.
        const COMMAND: [&str; 8] = [
            "find",
            "/sys/fs/bpf",
            "-mindepth",
            "1",
            "!",
            "-name",
            "*.*",
            "-delete",
        ];
        let refused = |why: String| FaultError::Refused {
            node: self.node.clone(),
            what: COMMAND.join(" "),
            why,
        };
        let place = Place::Host {
            node: self.node.clone(),
        };
        let child = self.cluster.exec(&place, &COMMAND.map(str::to_owned)).await?;
        let output = child
            .wait_with_output()
            .await
            .map_err(|error| refused(error.to_string()))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(refused(String::from_utf8_lossy(&output.stderr).into_owned()))
        }
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
