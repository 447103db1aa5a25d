//! The parts that a cluster is assembled from. Providers implement them; cases use them through [`Cluster`](crate::Cluster).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, Capability, ClusterError, FaultLease, Stop, Variant,
    spawn::Placed,
};

/// Pods of a cluster, and whether it is there at all: what every cluster has.
#[async_trait]
pub trait PodAccess: Send + Sync {
    /// What runs a program in a pod: in its network namespace and its cgroup.
    ///
    /// # Errors
    /// There is no such pod, or it does not run.
    async fn command(&self, namespace: &str, pod: &str, argv: &[String]) -> Result<Placed, ClusterError>;

    /// What a pod's server wrote so far, line by line as it stands: each line is a `Served` of the crate oracle.
    ///
    /// # Errors
    /// There is no such pod, or its log can't be read.
    async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError>;

    /// Whether the cluster itself is still there, asked after a case: what was seen in one that ended meanwhile is no verdict
    /// on the target.
    ///
    /// # Errors
    /// What is gone.
    async fn intact(&self) -> Result<(), ClusterError>;

    /// Copies objects, logs and counters that explain a failure into a folder.
    ///
    /// # Errors
    /// The folder can't be written.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError>;
}

/// Processes on nodes, outside any pod.
#[async_trait]
pub trait NodeAccess: Send + Sync {
    /// What it can beside starting processes: [`Capability::Node`] if they are root's there and see the node's own namespaces,
    /// and what else is of nodes.
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// What runs a program on a node.
    ///
    /// # Errors
    /// There is no such node.
    async fn command(&self, node: &str, argv: &[String]) -> Result<Placed, ClusterError>;

    /// The folder that is the root of the nodes' cgroup v2 hierarchy, as a process on a node sees it.
    fn cgroup_root(&self) -> &Path;

    /// What a node had before its agent was installed, as `plumbline node remains` counts it: asked where
    /// [`Capability::Baseline`] is declared.
    ///
    /// # Errors
    /// There is no such node.
    async fn baseline(&self, node: &str) -> Result<BTreeMap<String, usize>, ClusterError>;
}

/// The agents of the target, one on each node.
#[async_trait]
pub trait AgentControl: Send + Sync {
    /// What it can beside stopping and starting: [`Capability::AgentCleanup`] …
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// What agents pin, in patterns of paths below a node's bpffs (see [`Installation::pins`](crate::target::Installation));
    /// [`EVERY_PIN`](crate::EVERY_PIN), if all of that bpffs is the cluster's own; nothing, if it is not known.
    fn pins(&self) -> Vec<String>;

    /// The agent of a node.
    ///
    /// # Errors
    /// There is no such node, or it can't be asked.
    async fn state(&self, node: &str) -> Result<AgentState, ClusterError>;

    /// Ends the agent of a node and keeps it ended.
    ///
    /// # Errors
    /// It does not end in time.
    async fn stop(&self, node: &str, how: Stop) -> Result<(), ClusterError>;

    /// Starts it, in its target's own configuration or in another one that the target has
    /// ([`Description::variants`](crate::Description)), which lasts until the next start; one that runs in another
    /// configuration is ended first.
    ///
    /// # Errors
    /// It does not start in time; the configuration is not known.
    async fn start(&self, node: &str, variant: Option<Variant>) -> Result<(), ClusterError>;

    /// How the agent of a node is told to reach the API from its next start on; `None`: as at first. Whatever answers there must
    /// have the certificate of the cluster's API servers. The agent must be stopped.
    ///
    /// # Errors
    /// It runs; its target has no such way.
    async fn set_api_endpoint(&self, node: &str, endpoint: Option<&ApiEndpoint>) -> Result<(), ClusterError>;

    /// Removes what the target keeps on a node between runs (its pins and state directories), by the target's own documented
    /// way. The agent must be stopped.
    ///
    /// # Errors
    /// It runs; the clean-up fails.
    async fn clean_up(&self, node: &str) -> Result<(), ClusterError>;

    /// Copies what agents have logged and programmed into a folder.
    ///
    /// # Errors
    /// The folder can't be written, or an agent can't be read.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError>;
}

/// The API servers: which there are, and what can be done to them.
#[async_trait]
pub trait ControlPlaneFaults: Send + Sync {
    /// Which faults there are: none for whoever can only see the servers.
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// All of them, by number. What a case does to them meets everybody but the administrator.
    ///
    /// # Errors
    /// They can't be seen.
    async fn servers(&self) -> Result<Vec<ApiServer>, ClusterError>;

    /// Lets something be wrong with them, for at most [`LONGEST`](crate::LONGEST); it is in force when this returns.
    ///
    /// # Errors
    /// The fault can't be made.
    async fn begin(&self, fault: &ApiFault, lasts: Duration) -> Result<FaultLease, ClusterError>;

    /// Lets the resourceVersion jump ahead, as it does when others write much to the same etcd.
    ///
    /// # Errors
    /// It can't be made to.
    async fn jump_versions(&self, by: u32) -> Result<(), ClusterError>;
}

/// A client outside the cluster.
#[async_trait]
pub trait OutsideClient: Send + Sync {
    /// What runs a program there.
    ///
    /// # Errors
    /// It is gone.
    async fn command(&self, argv: &[String]) -> Result<Placed, ClusterError>;
}

/// The parts that a cluster may have beside its API and its pods. A capability is that its part is there, and has it.
#[derive(Clone, Default)]
pub struct Parts {
    /// Processes on nodes.
    pub nodes: Option<Arc<dyn NodeAccess>>,
    /// The agents.
    pub agents: Option<Arc<dyn AgentControl>>,
    /// The API servers.
    pub control_plane: Option<Arc<dyn ControlPlaneFaults>>,
    /// A client outside.
    pub outside: Option<Arc<dyn OutsideClient>>,
    /// Whether Services of type LoadBalancer are given addresses, of each family that the cluster has. Nothing can be asked of
    /// what gives them: cases read the Services.
    pub has_load_balancers: bool,
}

impl Parts {
    /// Everything that they can.
    #[must_use]
    pub fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all = BTreeSet::new();
        if let Some(nodes) = &self.nodes {
            all.extend(nodes.capabilities());
        }
        if let Some(agents) = &self.agents {
            all.extend(agents.capabilities());
            if !agents.pins().is_empty() {
                all.insert(Capability::AgentPins);
            }
        }
        if let Some(control_plane) = &self.control_plane {
            all.insert(Capability::ApiServers);
            all.extend(control_plane.capabilities());
        }
        if self.outside.is_some() {
            all.insert(Capability::Outside);
        }
        if self.has_load_balancers {
            all.insert(Capability::LoadBalancerAddresses);
        }
        all
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Parts")
            .field(&self.capabilities())
            .finish()
    }
}
