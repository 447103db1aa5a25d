//! An agent that is down.

use std::{sync::Arc, time::Duration};

use lab::cluster::{Cluster, Place, Stop, Variant};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::timeout,
};

use crate::FaultError;

/// How long a drop waits for the start.
const START: Duration = Duration::from_secs(30);
/// How long a command on a node may take: none of them waits for anything.
const COMMAND: Duration = Duration::from_secs(30);

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
        const DELETE: [&str; 8] = [
            "find",
            "/sys/fs/bpf",
            "-mindepth",
            "1",
            "!",
            "-name",
            "*.*",
            "-delete",
        ];
        on_host(&*self.cluster, &self.node, &DELETE).await.map(drop)
    }

    /// Heals: starts it again.
    pub async fn start(mut self) -> Result<(), FaultError> {
        self.cluster.start_agent(&self.node).await?;
        self.is_down = false;
        Ok(())
    }

    /// Starts it in another configuration.
    pub async fn start_as(mut self, variant: Variant) -> Result<OtherwiseConfigured, FaultError> {
        self.cluster.start_agent_as(&self.node, variant).await?;
        self.is_down = false;
        Ok(OtherwiseConfigured {
            cluster: Arc::clone(&self.cluster),
            node: self.node.clone(),
            is_on: true,
        })
    }
}

/// The agent of a node, which runs in another configuration than its target's own.
///
/// Drop starts it as it was, if it happens in a multi-threaded runtime. It does not expire: whoever runs a case looks for
/// such agents when its process has died.
#[must_use = "the agent gets its own configuration again when this is dropped"]
pub struct OtherwiseConfigured {
    cluster: Arc<dyn Cluster>,
    node: String,
    is_on: bool,
}

impl OtherwiseConfigured {
    /// Heals: ends it, and starts it in its target's own configuration.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.cluster.start_agent(&self.node).await?;
        self.is_on = false;
        Ok(())
    }
}

impl Drop for OtherwiseConfigured {
    fn drop(&mut self) {
        if !self.is_on {
            return;
        }
        let what = format!("the agent of {} stays in another configuration", self.node);
        heal_in_drop(&what, async { Ok(self.cluster.start_agent(&self.node).await?) });
    }
}

/// Runs a command on a node, to its end; returns what it wrote to stdout.
pub(crate) async fn on_host(
    cluster: &dyn Cluster,
    node: &str,
    command: &[&str],
) -> Result<String, FaultError> {
    let refused = |why: String| FaultError::Refused {
        node: node.to_owned(),
        what: command.join(" "),
        why,
    };
    let place = Place::Host {
        node: node.to_owned(),
    };
    let argv: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let child = cluster.exec(&place, &argv).await?;
    let output = timeout(COMMAND, child.wait_with_output())
        .await
        .map_err(|_| refused(format!("it has not ended within {COMMAND:?}")))?
        .map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(refused(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// Runs in a drop what heals a fault, for at most [`START`].
pub(crate) fn heal_in_drop(what: &str, healing: impl Future<Output = Result<(), FaultError>>) {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            let done = tokio::task::block_in_place(|| handle.block_on(timeout(START, healing)));
            match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!("{what}: {error}"),
                Err(_) => tracing::error!("{what}: not healed within {START:?}"),
            }
        }
        _ => tracing::error!("{what}: there is no runtime to heal it in"),
    }
}

impl Drop for StoppedAgent {
    fn drop(&mut self) {
        if !self.is_down {
            return;
        }
        heal_in_drop(&format!("the agent of {} stays down", self.node), async {
            Ok(self.cluster.start_agent(&self.node).await?)
        });
    }
}
