//! The fault that writes of an agent can fail: it is started for it once more, and once more without it in the end.

use std::{sync::Arc, time::Duration};

use cluster::{ClusterError, LONGEST, Stop};

use super::{agent::Agent, kernel_writes::KernelWrites};

/// An agent that was started so that its writes can fail.
#[must_use = "it is started without that by `heal` alone"]
pub(super) struct WatchedWrites {
    agent: Agent,
}

impl WatchedWrites {
    /// Starts the agent once more.
    pub(super) async fn begin(agent: Agent, lasts: Duration) -> Result<Self, ClusterError> {
        let watched = Self { agent };
        if lasts > LONGEST {
            return Err(watched.failed()(format!(
                "expected at most {LONGEST:?}, found {lasts:?}"
            )));
        }
        if watched.agent.watch().writes().is_some() {
            let why = "it is already: end the fault that does it first";
            return Err(watched.failed()(why.to_owned()));
        }
        watched.restart(Some(Arc::default())).await?;
        Ok(watched)
    }

    /// Starts it once more, as it was.
    pub(super) async fn heal(self) -> Result<(), ClusterError> {
        self.restart(None).await
    }

    async fn restart(&self, writes: Option<Arc<KernelWrites>>) -> Result<(), ClusterError> {
        self.agent.stop(Stop::Term).await.map_err(self.failed())?;
        let is_watched = writes.is_some();
        self.agent.watch().set(writes);
        let started = self.agent.start(None).await;
        if started.is_err() && is_watched {
            // It is tried again, and then without.
            self.agent.watch().set(None);
        }
        started.map_err(self.failed())
    }

    fn failed(&self) -> impl FnOnce(String) -> ClusterError {
        let node = self.agent.node().to_owned();
        move |why| {
            ClusterError::failed(
                format!("watch what the agent of {node} writes to the kernel"),
                why,
            )
        }
    }
}
