//! An agent that reaches the API by another way than at first.

use std::sync::Arc;

use cluster::{ApiEndpoint, Cluster, Stop};

use crate::{FaultError, agent::heal_in_drop};

/// The agent of a node, led to the API by a way of the case's own.
///
/// Drop leads it back and starts it again, if it happens in a multi-threaded runtime. Nobody on the node knows when that
/// should be, so it does not expire: whoever runs a case looks for agents that are led elsewhere when its process has
/// died, and `plumbline heal` does.
#[must_use = "the agent is led back when this is dropped"]
pub struct RedirectedAgent {
    cluster: Arc<Cluster>,
    node: String,
    is_led: bool,
}

impl RedirectedAgent {
    /// Stops it, leads it there, and starts it again.
    ///
    /// # Errors
    /// It does not stop or start, or the cluster can't lead it.
    pub async fn lead(cluster: Arc<Cluster>, node: &str, way: &ApiEndpoint) -> Result<Self, FaultError> {
        // Before the attempt: one that fails halfway must heal too.
        let led = Self {
            cluster,
            node: node.to_owned(),
            is_led: true,
        };
        led.go(Some(way)).await?;
        Ok(led)
    }

    /// Heals: leads it back, and starts it again.
    ///
    /// # Errors
    /// As [`lead`](Self::lead).
    pub async fn back(mut self) -> Result<(), FaultError> {
        self.go(None).await?;
        self.is_led = false;
        Ok(())
    }

    async fn go(&self, way: Option<&ApiEndpoint>) -> Result<(), FaultError> {
        lead(&self.cluster, &self.node, way).await
    }
}

/// Stops an agent, tells it its way, and starts it again whatever became of that.
///
/// # Errors
/// It does not stop or start, or the cluster can't lead it.
pub async fn lead(cluster: &Cluster, node: &str, way: Option<&ApiEndpoint>) -> Result<(), FaultError> {
    cluster.agents()?.stop(node, Stop::Term).await?;
    let told = cluster.agents()?.set_api_endpoint(node, way).await;
    cluster.agents()?.start(node, None).await?;
    Ok(told?)
}

impl Drop for RedirectedAgent {
    fn drop(&mut self) {
        if self.is_led {
            let what = format!("the agent of {} is led elsewhere", self.node);
            heal_in_drop(&what, self.go(None));
        }
    }
}
