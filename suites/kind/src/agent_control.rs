//! Agent control of a kind cluster, for cases.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use async_trait::async_trait;
use cluster::{
    AgentControl, AgentState, ApiEndpoint, Capability, ClusterError, EVERY_PIN, Stop, Variant,
    target::program::Values,
};

use super::{
    KindError, LIMITS,
    access::{DebugClient, keep, node},
    agents::{self, Agents},
    containers::Container,
    error::cluster_error,
    process_lookup::{self, on_node},
};

/// The agents, and their nodes.
#[derive(Debug)]
pub(super) struct KindAgents {
    pub(super) nodes: Arc<Vec<Container>>,
    pub(super) client: DebugClient,
    pub(super) agents: Agents,
    /// Whether the agents are not the CNI plugin.
    pub(super) pods_without_agents: bool,
}

impl KindAgents {
    /// Removes what the target keeps on a node, by its documented clean-up.
    async fn wipe(&self, node: &Container) -> Result<(), KindError> {
        let program = self.agents.program();
        let what = format!("clean up after the agent of {}", node.name);
        let state = Path::new("/run/plumbline");
        let values = Values {
            kubeconfig: Path::new("/etc/kubernetes/kubelet.conf"),
            node: &node.name,
            cgroup: &node.cgroup_root.to_string_lossy(),
            bpffs: &node.bpffs.to_string_lossy(),
            state,
        };
        let words = values.fill(&program.cleanup);
        on_node(
            node,
            &agents::program_path(program),
            &words,
            &what,
            LIMITS.agent_cleanup,
        )
        .await
        .map(drop)
    }
}

#[async_trait]
impl AgentControl for KindAgents {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all = BTreeSet::from([Capability::Node, Capability::AgentCleanup]);
        if self.pods_without_agents {
            all.insert(Capability::PodsWithoutAgents);
        }
        all
    }

    /// Each node has a bpffs of its own.
    fn pins(&self) -> Vec<String> {
        vec![EVERY_PIN.to_owned()]
    }

    async fn state(&self, name: &str) -> Result<AgentState, ClusterError> {
        let found = node(&self.nodes, name)?;
        let state = self.agents.state(&self.client.0, found).await;
        let mut state = state.map_err(cluster_error(&format!("ask for the agent of {name}")))?;
        state.pid = state.pid.and_then(|pid| process_lookup::as_on_node(found, pid));
        Ok(state)
    }

    async fn stop(&self, name: &str, how: Stop) -> Result<(), ClusterError> {
        let done = self
            .agents
            .stop(&self.client.0, node(&self.nodes, name)?, how)
            .await;
        done.map_err(cluster_error(&format!("stop the agent of {name}")))
    }

    async fn start(&self, name: &str, variant: Option<Variant>) -> Result<(), ClusterError> {
        let found = node(&self.nodes, name)?;
        let done = self.agents.start(&self.client.0, found, variant).await;
        done.map_err(cluster_error(&format!("start the agent of {name}")))
    }

    async fn set_api_endpoint(&self, name: &str, endpoint: Option<&ApiEndpoint>) -> Result<(), ClusterError> {
        let found = node(&self.nodes, name)?;
        let documented = &self.agents.program().api;
        let further = endpoint.is_some_and(|endpoint| !endpoint.further.is_empty());
        if endpoint.is_some()
            && (!self.agents.supports_api_endpoint() || further && documented.further.is_none())
        {
            return Err(ClusterError::unsupported("set this API endpoint for its agents"));
        }
        let done = self
            .agents
            .set_api_endpoint(&self.client.0, found, endpoint)
            .await;
        done.map_err(cluster_error(&format!(
            "set the API endpoint of the agent of {name}"
        )))
    }

    async fn clean_up(&self, name: &str) -> Result<(), ClusterError> {
        let found = node(&self.nodes, name)?;
        let what = format!("clean up after the agent of {name}");
        if self.state(name).await?.pid.is_some() {
            return Err(ClusterError::Failed {
                what,
                why: "it runs; stop it first".to_owned(),
            });
        }
        self.wipe(found).await.map_err(cluster_error(&what))
    }

    /// The agents' logs.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        for node in self.nodes.iter() {
            let log = self.agents.log(&self.client.0, &node.name).await;
            let log = log.unwrap_or_else(|error| format!("{error}\n"));
            keep(&folder.join(format!("agent-{}.log", node.name)), &log)?;
        }
        Ok(())
    }
}
