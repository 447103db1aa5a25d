//! Requests to the supervisor and its responses: one JSON line each, one request for each connection.

use std::{net::IpAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use cluster::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, ClusterError, Description, Place, Stop, Variant,
};
use serde::{Deserialize, Serialize};

use super::{LabConfig, LabError};

/// A request on the control socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// [`Reply::About`].
    About,
    /// [`Reply::Status`].
    Status,
    /// [`Reply::Located`].
    Locate { place: Place },
    /// [`Reply::Agent`].
    Agent { node: String },
    /// [`Reply::Done`] when the agent has ended.
    StopAgent { node: String, how: Stop },
    /// [`Reply::Done`] when the agent has been started.
    StartAgent { node: String, variant: Option<Variant> },
    /// [`Reply::Done`] when the endpoint of the next start is set.
    SetApiEndpoint {
        node: String,
        endpoint: Option<ApiEndpoint>,
    },
    /// [`Reply::Done`] when the agent's clean-up command has succeeded.
    CleanUpAgent { node: String },
    /// [`Reply::ApiServers`].
    ApiServers,
    /// A [`FaultLease`](cluster::FaultLease) continues on the connection.
    ApiFault { fault: ApiFault, lasts: Duration },
    /// A node loses its power; a [`FaultLease`](cluster::FaultLease) continues on the connection.
    PowerLoss { node: String, lasts: Duration },
    /// The outside client has addresses behind a narrow hop; a [`FaultLease`](cluster::FaultLease) continues on the
    /// connection.
    NarrowHop { lasts: Duration },
    /// Writes of an agent to the kernel can fail; a [`FaultLease`](cluster::FaultLease) continues on the connection.
    WatchWrites { node: String, lasts: Duration },
    /// [`Reply::FailedWrites`]; one of so many fails from now on.
    FailWrites {
        node: String,
        one_of: Option<NonZeroU32>,
    },
    /// [`Reply::Done`] when the resourceVersion is increased.
    JumpVersions { by: u32 },
    /// [`Reply::Done`] when nothing is left but the supervisor itself.
    Down,
}

/// A response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    Done,
    /// The lab is starting: response of this supervisor to every request but [`Request::Down`].
    Starting {
        pid: u32,
    },
    About(Box<About>),
    Status(Status),
    Located(Located),
    Agent(AgentState),
    ApiServers(Vec<ApiServer>),
    FailedWrites(u64),
    Refused(ClusterError),
}

/// Facts of a running lab that never change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) description: Description,
    pub(super) config: LabConfig,
    /// Process id of the supervisor.
    pub(super) pid: u32,
    /// Address of the API server on this host's loopback.
    pub(super) api: String,
}

/// Where a process is placed: numbers of the supervisor's file descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Located {
    pub(super) net: Descriptor,
    pub(super) mnt: Option<Descriptor>,
    /// Folder of its cgroup on this host.
    pub(super) cgroup: PathBuf,
    /// Value of `KUBECONFIG`.
    pub(super) kubeconfig: Option<PathBuf>,
}

/// A namespace held by the supervisor.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Descriptor {
    /// Number of the supervisor's file descriptor.
    pub(super) fd: i32,
    /// Inode of the namespace, to detect a reused descriptor number.
    pub(super) inode: u64,
}

/// State of a lab for `plumbline lab status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Name of the lab.
    pub name: String,
    /// Process id of its supervisor.
    pub supervisor: u32,
    /// The administrator's API server, on this host's loopback.
    pub api: String,
    /// The API servers, by number.
    pub api_servers: Vec<ApiServer>,
    /// Active faults of the API servers, oldest first.
    pub api_faults: Vec<ActiveApiFault>,
    /// The target.
    pub target: String,
    /// Nodes, sorted by name.
    pub nodes: Vec<NodeStatus>,
}

/// An active fault of the API servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActiveApiFault {
    /// The fault.
    pub fault: ApiFault,
    /// Time since its begin.
    pub age: Duration,
    /// Time until it ends by itself.
    pub left: Duration,
}

/// State of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// InternalIPs, primary family first.
    pub addresses: Vec<IpAddr>,
    /// Pod address ranges, primary family first.
    pub pod_cidrs: Vec<String>,
    /// Its agent.
    pub agent: AgentState,
    /// Pods that the kubelet runs, sorted by namespace and name.
    pub pods: Vec<PodView>,
}

/// State of one pod in its kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Addresses of the pod, primary family first; empty until it has some.
    pub addresses: Vec<IpAddr>,
    /// Whether the pod serves.
    pub ready: bool,
    /// Number of restarts of its container.
    pub restarts: u32,
    /// Reason why it does not run; empty if it does.
    pub reason: String,
}

/// Events that the supervisor sends to its parent on stdout, one JSON line each, until the lab runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StartEvent {
    /// A step begins.
    Step(String),
    /// The lab runs.
    Up,
    /// A lab of this name is already running.
    AlreadyUp { pid: u32 },
    /// A lab of this name is already being started.
    Starting { pid: u32 },
    /// The start failed, and its leftovers are removed.
    Failed(String),
}

impl From<&LabError> for StartEvent {
    fn from(error: &LabError) -> Self {
        match error {
            LabError::AlreadyUp { pid, .. } => Self::AlreadyUp { pid: *pid },
            LabError::Starting { pid, .. } => Self::Starting { pid: *pid },
            other => Self::Failed(other.to_string()),
        }
    }
}
