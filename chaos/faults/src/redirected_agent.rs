//! An agent that reaches the API by another endpoint than its own.

use cluster::{ApiEndpoint, Cluster, Stop};

use crate::{FaultError, FaultInjector};

/// The agent of a node, using an API endpoint that the case has chosen.
///
/// Dropping it gives the agent its own endpoint and restarts it, in a multi-threaded runtime. It does not expire: if the
/// process of its case dies, [`heal`](crate::heal) does the same.
#[must_use = "the agent gets its own API endpoint again when this is dropped"]
pub struct RedirectedAgent {
    injector: FaultInjector,
    node: String,
    is_redirected: bool,
}

impl RedirectedAgent {
    /// Stops the agent, sets its endpoint, and starts it again.
    ///
    /// # Errors
    /// It does not stop or start, or the cluster can't set the endpoint.
    pub async fn redirect(
        injector: &FaultInjector,
        node: &str,
        endpoint: &ApiEndpoint,
    ) -> Result<Self, FaultError> {
        // Before the attempt: one that fails halfway must heal too.
        let fault = Self {
            injector: injector.clone(),
            node: node.to_owned(),
            is_redirected: true,
        };
        fault.set(Some(endpoint)).await?;
        Ok(fault)
    }

    /// Heals: the agent gets its own endpoint and is restarted.
    ///
    /// # Errors
    /// As [`redirect`](Self::redirect).
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.set(None).await?;
        self.is_redirected = false;
        Ok(())
    }

    async fn set(&self, endpoint: Option<&ApiEndpoint>) -> Result<(), FaultError> {
        redirect_agent(self.injector.cluster(), &self.node, endpoint).await
    }
}

impl Drop for RedirectedAgent {
    fn drop(&mut self) {
        if self.is_redirected {
            let fault = format!("the agent of {} keeps another API endpoint", self.node);
            self.injector.heal_in_drop(&fault, self.set(None));
        }
    }
}

/// Restarts an agent with an API endpoint, or with its own. It is started even if setting the endpoint fails.
///
/// # Errors
/// It does not stop or start, or the cluster can't set the endpoint.
pub async fn redirect_agent(
    cluster: &Cluster,
    node: &str,
    endpoint: Option<&ApiEndpoint>,
) -> Result<(), FaultError> {
    cluster.agents()?.stop(node, Stop::Term).await?;
    let set = cluster.agents()?.set_api_endpoint(node, endpoint).await;
    cluster.agents()?.start(node, None).await?;
    Ok(set?)
}
