//! What differs between clusters of Kubernetes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    time::Duration,
};

use async_trait::async_trait;
use cluster::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, Capability, ClusterError, HeldApiFault, Place, Stop,
    Variant, spawn::Placement,
};

/// What somebody who runs a cluster can do beside its API: the extension point of
/// [`KubernetesCluster`](super::KubernetesCluster).
///
/// Everything but [`Extension::capabilities`] and what has a way by the API is asked only where that declares it; each other
/// method that is not implemented says that the cluster can't. The methods are those of [`Cluster`](cluster::Cluster) of the
/// same names, and promise the same.
#[async_trait]
pub trait Extension: Send + Sync {
    /// What it adds to what the API gives (families, `ApiWrite`, `HostNetwork` by pods).
    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::new()
    }

    /// A command on this machine that runs a program in a place, its pipes bridged, and ends it when it is killed; and where
    /// it is to be started, for places that are namespaces of this machine. `None`: by the API, in a pod of that place.
    async fn command(
        &self,
        place: &Place,
        argv: &[String],
    ) -> Result<Option<(Command, Placement)>, ClusterError> {
        let _ = (place, argv);
        Ok(None)
    }

    /// Whether what it stands on is still there: containers, say.
    async fn intact(&self) -> Result<(), ClusterError> {
        Ok(())
    }

    /// The root of the nodes' cgroup v2 hierarchy, as a process on a host sees it; asked by cases that need
    /// [`Capability::Node`] only.
    fn cgroup_root(&self) -> &Path {
        Path::new("/sys/fs/cgroup")
    }

    /// What the agents pin; that something is known of it is [`Capability::AgentPins`].
    fn pins(&self) -> Vec<String> {
        Vec::new()
    }

    /// What explains a failure beside objects and logs.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        let _ = folder;
        Ok(())
    }

    /// The agent of a node.
    async fn agent(&self, node: &str) -> Result<AgentState, ClusterError> {
        let _ = node;
        Err(unsupported("show its agents"))
    }

    /// Ends the agent of a node and keeps it ended.
    async fn stop_agent(&self, node: &str, how: Stop) -> Result<(), ClusterError> {
        let _ = (node, how);
        Err(unsupported("stop its agents"))
    }

    /// Starts it again, in another configuration where one is named.
    async fn start_agent(&self, node: &str, variant: Option<Variant>) -> Result<(), ClusterError> {
        let _ = (node, variant);
        Err(unsupported("start its agents"))
    }

    /// Tells it how to reach the API.
    async fn set_agent_api_endpoint(
        &self,
        node: &str,
        way: Option<&ApiEndpoint>,
    ) -> Result<(), ClusterError> {
        let _ = (node, way);
        Err(unsupported("lead its agents to the API"))
    }

    /// Removes what the target keeps on a node.
    async fn wipe_state(&self, node: &str) -> Result<(), ClusterError> {
        let _ = node;
        Err(unsupported("wipe what its agents keep"))
    }

    /// What it had before its agent was installed.
    async fn baseline(&self, node: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        let _ = node;
        Err(unsupported("tell what nodes had before their agents"))
    }

    /// The API servers. `None`: those that `default/kubernetes` lists.
    fn api_servers(&self) -> Option<Vec<ApiServer>> {
        None
    }

    /// Lets something be wrong with them.
    async fn api_fault(&self, fault: &ApiFault, lasts: Duration) -> Result<HeldApiFault, ClusterError> {
        let _ = (fault, lasts);
        Err(unsupported("make faults of its API servers"))
    }

    /// Lets the resourceVersion jump ahead.
    async fn jump_versions(&self, by: u32) -> Result<(), ClusterError> {
        let _ = by;
        Err(unsupported("let the resourceVersion jump"))
    }
}

/// Nothing but the API: somebody's cluster, whatever runs in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiOnly;

impl Extension for ApiOnly {}

fn unsupported(what: &'static str) -> ClusterError {
    ClusterError::Unsupported { what }
}
