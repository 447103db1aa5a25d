//! The parts that a cluster is assembled from. Providers implement these traits; cases use them through
//! [`Cluster`](crate::Cluster).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    num::NonZeroU32,
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, Capability, ClusterError, FaultLease, Stop, Variant,
    spawn::Placed,
};

/// Pods of a cluster, and its liveness. Every cluster has this part.
#[async_trait]
pub trait PodAccess: Send + Sync {
    /// Prepares the command that runs a program in a pod: in its network namespace and its cgroup.
    ///
    /// # Errors
    /// The pod does not exist, or does not run.
    async fn command(&self, namespace: &str, pod: &str, argv: &[String]) -> Result<Placed, ClusterError>;

    /// Log of a pod's server so far, verbatim: each line is a `Served` of the crate oracle.
    ///
    /// # Errors
    /// The pod does not exist, or its log can't be read.
    async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError>;

    /// Whether the cluster still exists. Checked after a case: what was seen in a cluster that ended meanwhile is no
    /// verdict on the target.
    ///
    /// # Errors
    /// Which part of the cluster is gone.
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
    /// Capabilities beyond starting processes: those that concern nodes, such as [`Capability::Baseline`].
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// Prepares the command that runs a program on a node.
    ///
    /// # Errors
    /// The node does not exist.
    async fn command(&self, node: &str, argv: &[String]) -> Result<Placed, ClusterError>;

    /// Root of the nodes' cgroup v2 hierarchy, as a process on a node sees it.
    fn cgroup_root(&self) -> &Path;

    /// State of a node before its agent was installed, as `plumbline node remains` counts it. Available with
    /// [`Capability::Baseline`].
    ///
    /// # Errors
    /// The node does not exist.
    async fn baseline(&self, node: &str) -> Result<BTreeMap<String, usize>, ClusterError>;

    /// Takes the power of a node, for at most [`LONGEST`](crate::LONGEST): when this returns, nothing of it runs, sends
    /// or answers, and its peers were told nothing. Available with [`Capability::PowerLoss`].
    ///
    /// # Errors
    /// The node does not exist, or has no power already; the cluster has no such capability.
    async fn lose_power(&self, _node: &str, _lasts: Duration) -> Result<FaultLease, ClusterError> {
        Err(ClusterError::unsupported("take the power of its nodes"))
    }
}

/// The agents of the target, one on each node.
#[async_trait]
pub trait AgentControl: Send + Sync {
    /// [`Capability::Node`] if agents can be stopped and started, and capabilities beyond that, such as
    /// [`Capability::AgentCleanup`].
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// The agents' pins, as patterns of paths below a node's bpffs (see
    /// [`Installation::pins`](crate::target::Installation)). [`EVERY_PIN`](crate::EVERY_PIN) if the whole bpffs
    /// belongs to the cluster; empty if they are not known.
    fn pins(&self) -> Vec<String>;

    /// State of the agent of a node.
    ///
    /// # Errors
    /// The node does not exist, or its state can't be read.
    async fn state(&self, node: &str) -> Result<AgentState, ClusterError>;

    /// Stops the agent of a node until it is started again.
    ///
    /// # Errors
    /// The agent does not end in time.
    async fn stop(&self, node: &str, how: Stop) -> Result<(), ClusterError>;

    /// Starts the agent in its default configuration, or in a variant of its target
    /// ([`Description::variants`](crate::Description)), until the next start. An agent that runs in another
    /// configuration is stopped first.
    ///
    /// # Errors
    /// The agent does not start in time; the variant is unknown.
    async fn start(&self, node: &str, variant: Option<Variant>) -> Result<(), ClusterError>;

    /// Sets the API endpoint for the agent's next starts; `None`: the original one. The server at this address must
    /// have the certificate of the cluster's API servers. The agent must be stopped.
    ///
    /// # Errors
    /// The agent runs; its target supports no other endpoint.
    async fn set_api_endpoint(&self, node: &str, endpoint: Option<&ApiEndpoint>) -> Result<(), ClusterError>;

    /// Starts the agent of a node once more, in its default configuration and so that [`fail_writes`](Self::fail_writes)
    /// can fail what it writes to the kernel, for at most [`LONGEST`](crate::LONGEST). At the end of the fault it is started
    /// without that. Available with [`Capability::WriteFailures`].
    ///
    /// # Errors
    /// The agent does not stop or start; it was started so already; the cluster has no such capability.
    async fn watch_writes(&self, _node: &str, _lasts: Duration) -> Result<FaultLease, ClusterError> {
        Err(ClusterError::unsupported("watch what agents write to the kernel"))
    }

    /// Lets one of so many writes of an agent to the kernel fail from now on, by chance and for want of memory (ENOMEM); `None`:
    /// none. A write is a change of entries of a map, and each start of what writes rules (nft, iptables) or tracked flows.
    /// Returns how many have failed so far.
    ///
    /// # Errors
    /// Its writes are not watched ([`watch_writes`](Self::watch_writes)).
    async fn fail_writes(&self, _node: &str, _one_of: Option<NonZeroU32>) -> Result<u64, ClusterError> {
        Err(ClusterError::unsupported(
            "let writes of agents to the kernel fail",
        ))
    }

    /// Removes what the target keeps on a node between runs (pins and state directories), by the target's documented
    /// clean-up. The agent must be stopped.
    ///
    /// # Errors
    /// The agent runs; the clean-up fails.
    async fn clean_up(&self, node: &str) -> Result<(), ClusterError>;

    /// What the running agent of a node has programmed, as the target's own command prints it; `None`: it has none.
    ///
    /// # Errors
    /// The command fails, or does not end in time.
    async fn dump(&self, node: &str) -> Result<Option<String>, ClusterError>;

    /// How what the running agent of a node has programmed differs from what the API lists, as the target's own command
    /// prints it; empty: they agree; `None`: it has no such command.
    ///
    /// # Errors
    /// The command fails (it may end with 1 where it prints something), or does not end in time.
    async fn differences(&self, node: &str) -> Result<Option<String>, ClusterError>;

    /// Copies the agents' logs and programmed state into a folder.
    ///
    /// # Errors
    /// The folder can't be written, or an agent's state can't be read.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError>;
}

/// The API servers and their faults.
#[async_trait]
pub trait ControlPlaneFaults: Send + Sync {
    /// The faults that can be made; none, if the servers can only be listed.
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// All servers by number. Faults affect all users but the administrator.
    ///
    /// # Errors
    /// The servers can't be listed.
    async fn servers(&self) -> Result<Vec<ApiServer>, ClusterError>;

    /// Begins a fault, for at most [`LONGEST`](crate::LONGEST); it is in force when this returns.
    ///
    /// # Errors
    /// The fault can't begin.
    async fn begin(&self, fault: &ApiFault, lasts: Duration) -> Result<FaultLease, ClusterError>;

    /// Increases the resourceVersion by a jump, as many writes of others to the same etcd do.
    ///
    /// # Errors
    /// The resourceVersion can't be changed.
    async fn jump_versions(&self, by: u32) -> Result<(), ClusterError>;
}

/// A client outside the cluster.
#[async_trait]
pub trait OutsideClient: Send + Sync {
    /// Prepares the command that runs a program on the client.
    ///
    /// # Errors
    /// The client is gone.
    async fn command(&self, argv: &[String]) -> Result<Placed, ClusterError>;

    /// Gives the client further addresses, for at most [`LONGEST`](crate::LONGEST), on the way to which a router takes
    /// packets of [`NARROW`](crate::NARROW) bytes at most, and says so to their senders. Available with
    /// [`Capability::NarrowHop`].
    ///
    /// # Errors
    /// There is one already; the cluster has no such capability.
    async fn narrow_hop(&self, _lasts: Duration) -> Result<(FaultLease, Vec<IpAddr>), ClusterError> {
        Err(ClusterError::unsupported(
            "put a narrow hop before its client outside",
        ))
    }
}

/// The optional parts of a cluster, beside its API and its pods.
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
    /// Whether Services of type LoadBalancer get addresses, of each family that the cluster has. There is no
    /// interface to the controller: cases read the Services.
    pub has_load_balancers: bool,
}

impl Parts {
    /// Capabilities of all parts.
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
