//! What the supervisor is asked and answers: one JSON line each, one request a connection.

use std::{net::IpAddr, path::PathBuf, time::Duration};

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
    /// [`Reply::Done`] when it has ended.
    StopAgent { node: String, how: Stop },
    /// [`Reply::Done`] when it has been started.
    StartAgent { node: String, variant: Option<Variant> },
    /// [`Reply::Done`] when its next start will know.
    SetApiEndpoint {
        node: String,
        endpoint: Option<ApiEndpoint>,
    },
    /// [`Reply::Done`] when the agent's clean-up command has succeeded.
    CleanUpAgent { node: String },
    /// [`Reply::ApiServers`].
    ApiServers,
    /// What follows on the connection is that of [`FaultLease`](cluster::FaultLease).
    ApiFault { fault: ApiFault, lasts: Duration },
    /// [`Reply::Done`] when the resourceVersion is so much higher.
    JumpVersions { by: u32 },
    /// [`Reply::Done`] when nothing is left but the supervisor itself.
    Down,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    Done,
    /// To whatever is asked of a lab that is not up yet, but [`Request::Down`]; by this supervisor.
    Starting {
        pid: u32,
    },
    About(Box<About>),
    Status(Status),
    Located(Located),
    Agent(AgentState),
    ApiServers(Vec<ApiServer>),
    Refused(ClusterError),
}

/// What stays the same as long as a lab is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) description: Description,
    pub(super) config: LabConfig,
    /// The supervisor.
    pub(super) pid: u32,
    /// The API server's address on this host's loopback.
    pub(super) api: String,
}

/// Where a process is to be put: descriptors of the supervisor, by number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Located {
    pub(super) net: Descriptor,
    pub(super) mnt: Option<Descriptor>,
    /// Folder of its cgroup on this host.
    pub(super) cgroup: PathBuf,
    /// For `KUBECONFIG`.
    pub(super) kubeconfig: Option<PathBuf>,
}

/// A namespace held by the supervisor.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Descriptor {
    /// Number of the supervisor's descriptor.
    pub(super) fd: i32,
    /// Inode of the namespace, so that a number that has got another meaning meanwhile shows.
    pub(super) inode: u64,
}

/// A lab as `plumbline lab status` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its supervisor.
    pub supervisor: u32,
    /// The administrator's API server, on this host's loopback.
    pub api: String,
    /// The API servers, by number.
    pub api_servers: Vec<ApiServer>,
    /// What is wrong with them just now, oldest first.
    pub api_faults: Vec<ActiveApiFault>,
    /// What is under test.
    pub target: String,
    /// Nodes in the order of their names.
    pub nodes: Vec<NodeStatus>,
}

/// A fault of the API servers that is in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActiveApiFault {
    /// What is wrong.
    pub fault: ApiFault,
    /// Since when.
    pub age: Duration,
    /// When it ends by itself.
    pub left: Duration,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// InternalIPs, the primary family's first.
    pub addresses: Vec<IpAddr>,
    /// Its ranges of pod addresses, likewise.
    pub pod_cidrs: Vec<String>,
    /// Its agent.
    pub agent: AgentState,
    /// Pods that the kubelet knows, in the order of namespace and name.
    pub pods: Vec<PodView>,
}

/// One pod as its kubelet sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its addresses, once it has some; the primary family's first.
    pub addresses: Vec<IpAddr>,
    /// Whether it serves.
    pub ready: bool,
    /// How often its container was started again.
    pub restarts: u32,
    /// Why it does not run, in a word; empty if it does.
    pub reason: String,
}

/// What the supervisor tells its starter on stdout, one JSON line each, until it is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StartEvent {
    /// A step begins.
    Step(String),
    /// It is up.
    Up,
    /// A lab of this name is up already.
    AlreadyUp { pid: u32 },
    /// A lab of this name is being brought up already.
    Starting { pid: u32 },
    /// It gave up, and has removed what it had made.
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
