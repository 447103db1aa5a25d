//! What a cluster is for a case, whoever has made it: a value with parts that may be there or not.
//!
//! ```text
//!  suites/targets ─▶ Target ─▶ providers (lab, kind, existing) ─▶ Cluster ─┬─ Description, kube::Client, pods
//!                                                                          ├─ NodeAccess?          processes on nodes
//!                                                                          ├─ AgentControl?        stopped, started, cleaned up
//!                                                                          ├─ ControlPlaneFaults?  ─▶ FaultLease
//!                                                                          └─ OutsideClient?       a client outside
//! ```
//!
//! A case sees the Kubernetes API ([`Cluster::client`]), places to run a process in ([`Cluster::exec`]) and the parts that the
//! provider has ([`Cluster::agents`] …). A [`Capability`] is that its part is there ([`Parts::capabilities`]); a case that needs
//! one that is not is skipped before the run. Nothing here knows a provider.
//!
//! Files: this one; `parts` (what providers implement); `assembled` (the value); `api` (what is seen of the API servers and done
//! to them); `fault_lease` (a fault of them, while it lasts); `deviation` (what a target is known not to do); `target/` (what is under test: the files of `suites/targets`); `software`
//! (what was found to run there); `image` (what clusters that run images are given); `dress` (what pods ask for); `spawn` and
//! `cgroup` (how a process gets to its place, for providers); `user_file` (files that a user names).

mod api;
mod assembled;
pub mod cgroup;
mod deviation;
pub mod dress;
mod fault_lease;
pub mod image;
mod parts;
pub mod software;
pub mod spawn;
pub mod target;
pub mod user_file;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use crate::software::Software;

pub use api::{
    ApiEndpoint, ApiEndpoints, ApiFault, ApiServer, Clients, Fault, LONGEST, Refusal, api_server_name, users,
};
pub use assembled::Cluster;
pub use deviation::{Deviation, Family, Frontend};
pub use fault_lease::{FaultLease, hold};
pub use parts::{AgentControl, ControlPlaneFaults, NodeAccess, OutsideClient, Parts, PodAccess};

/// What a provider can do beyond the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// IPv4 services.
    Ipv4,
    /// IPv6 services.
    Ipv6,
    /// EndpointSlices, Service status and other objects can be written.
    ApiWrite,
    /// Privileged processes on nodes; the agent can be stopped and started.
    Node,
    /// A client outside the cluster.
    Outside,
    /// Pods with the host's network, or processes on the host.
    HostNetwork,
    /// Somebody gives Services of type LoadBalancer their addresses, of each family.
    LoadBalancerAddresses,
    /// API servers can be seen: which there are, and where they listen.
    ApiServers,
    /// They can be stopped.
    ApiFaults,
    /// They can be kept from writing `default/kubernetes`.
    Unreconciled,
    /// They can be made to answer wrongly.
    WrongAnswers,
    /// There are several, and they advertise one address or can be made to.
    SharedAddress,
    /// What nodes had before their agents were installed is known.
    Baseline,
    /// A cgroup is above the agent's that is the cluster's own. Above that of a real node is none; above that of a node that
    /// is a container is what all containers of the host share.
    CgroupAbove,
    /// Which pins are the agents' is known: a node's bpffs is the cluster's own, or the target names them.
    AgentPins,
    /// What the agent of a node keeps there between runs can be removed: the target says how.
    AgentCleanup,
    /// Pods with a network of their own start on a node while its agent is removed: the agents are not what makes that network.
    PodsWithoutAgents,
    /// Processes in pods can have a cgroup namespace of their own, beyond what the runtime has given the pod.
    CgroupNamespaces,
    /// Processes in pods and outside can send packets with headers of their own, and see those at their devices.
    RawSockets,
    /// A node can get a device whose other end the client outside has: both are networks of this machine, and cases may change
    /// them as they like, as they go with the cluster.
    SecondNetwork,
}

/// A node as cases see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name in the API.
    pub name: String,
    /// InternalIP addresses.
    pub addresses: Vec<IpAddr>,
}

/// What runs where: printed before the run, written into reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// `lab`, `kind`, `existing`.
    pub provider: String,
    /// What is under test: `reference`, `mutant:NAME` …
    pub target: String,
    /// `uname -r` of the nodes.
    pub kernel: String,
    /// Nodes in the order of their names; at least one.
    pub nodes: Vec<Node>,
    /// What it can do.
    pub capabilities: BTreeSet<Capability>,
    /// Why it can't do what it was looked at for, in words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacking: BTreeMap<Capability, String>,
    /// Optional features of the catalogue that the target claims to have.
    pub features: BTreeSet<String>,
    /// Claims of the catalogue that the target is known not to keep.
    pub deviations: Vec<Deviation>,
    /// ApiEndpoints to the API that the target documents.
    pub ways: ApiEndpoints,
    /// Other configurations that the target has.
    #[serde(default)]
    pub variants: BTreeSet<Variant>,
    /// The image of clients and backends: what is written into pods where a manifest says [`PROBE`].
    #[serde(default = "probe")]
    pub image: String,
    /// Names of the Secrets by which nodes pull it, which are expected in namespaces of pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<String>,
    /// The only namespace that the suite may use, if it may make none: cases run one after another in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
    /// What was found to run there, as far as it was read.
    #[serde(default)]
    pub software: Software,
    /// How many nodes more the cluster has, which belong to cases that run beside this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nodes_of_others: usize,
}

impl Description {
    /// Leaves all nodes but one to others. One that is not there changes nothing.
    pub fn keep_to(&mut self, node: &str) {
        if self.nodes.iter().any(|one| one.name == node) {
            let before = self.nodes.len();
            self.nodes.retain(|one| one.name == node);
            self.nodes_of_others += before - self.nodes.len();
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The pattern of every pin of a node.
pub const EVERY_PIN: &str = "*";

/// Label of every namespace of the suite, and of what it makes in others: the run that made it.
pub const RUN_LABEL: &str = "plumbline-run";

/// The image of the probe in manifests, and in the embedded lab.
pub const PROBE: &str = "probe";

fn probe() -> String {
    PROBE.to_owned()
}

/// The variable that names a folder for processes in [`Place::Host`]: it goes with the node. Where it is not set, the node's
/// own `/run` does.
pub const NODE_FOLDER: &str = "PLUMBLINE_NODE_FOLDER";

/// Where a process runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In a pod: its network namespace and its cgroup.
    Pod {
        /// Namespace of the pod.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// On a node, as root, outside any pod: its network and mount namespaces and its cgroup.
    Host {
        /// The node.
        node: String,
    },
    /// On the client outside the cluster.
    Outside,
}

/// Where it is: `on the node node1`.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(formatter, "in the pod {namespace}/{name}"),
            Self::Host { node } => write!(formatter, "on the node {node}"),
            Self::Outside => formatter.write_str("on the client outside the cluster"),
        }
    }
}

/// A command line as a shell takes it, for messages.
#[must_use]
pub fn command_line(argv: &[String]) -> String {
    let quoted = shlex::try_join(argv.iter().map(String::as_str));
    // No shell takes a NUL.
    quoted.unwrap_or_else(|_| argv.join(" "))
}

/// How an agent is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// SIGTERM, and SIGKILL where that does not end it.
    Term,
    /// SIGKILL.
    Kill,
}

/// Another configuration of a target, as its file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// It translates nothing at sockets; packets are translated instead.
    SocketLbOff,
}

/// As target files name it.
impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SocketLbOff => "socket-lb-off",
        })
    }
}

/// The agent on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Process id as processes on its node see it, while it runs.
    pub pid: Option<u32>,
    /// How often it was started.
    pub starts: u32,
    /// What its `/readyz` says; `None` if it does not answer.
    pub ready: Option<bool>,
    /// Exit status of the last run that ended, in words.
    pub last_exit: Option<String>,
    /// How it is told to reach the API, where a case has said so.
    pub way: Option<ApiEndpoint>,
    /// In which configuration it was started last, if it was in another than its target's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<Variant>,
}

/// Why a cluster could not do what was asked. It travels from whatever runs the cluster to whoever asked, so what failed is in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterError {
    /// There is no such place, node or pod.
    #[error("there is no {what} {name:?} in this cluster")]
    NotFound {
        /// node, pod, container …
        what: Cow<'static, str>,
        /// Its name.
        name: String,
    },
    /// The provider lacks the capability.
    #[error("this cluster can't {what}")]
    Unsupported {
        /// What was asked.
        what: Cow<'static, str>,
    },
    /// A fault had ended by itself before it was ended: what was seen under it proves nothing.
    #[error("the fault was over before it was ended, because its time was; let it last longer")]
    FaultLapsed,
    /// It tried, and failed.
    #[error("failed to {what}: {why}")]
    Failed {
        /// What it tried.
        what: String,
        /// What came of it.
        why: String,
    },
}

impl ClusterError {
    /// There is no `what` of this name.
    #[must_use]
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound {
            what: what.into(),
            name: name.into(),
        }
    }

    /// The cluster can't `what`.
    #[must_use]
    pub fn unsupported(what: &'static str) -> Self {
        Self::Unsupported { what: what.into() }
    }

    /// It failed to `what`: `why`.
    pub fn failed(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self::Failed {
            what: what.into(),
            why: why.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_command_lines_read_as_people_write_them() {
        let pod = Place::Pod {
            namespace: "default".to_owned(),
            name: "b1".to_owned(),
        };
        let node = Place::Host {
            node: "node1".to_owned(),
        };
        let words = [pod, node, Place::Outside].map(|place| place.to_string());
        assert_eq!(
            words,
            [
                "in the pod default/b1",
                "on the node node1",
                "on the client outside the cluster"
            ]
        );
        let argv = ["sh", "-c", "exit 7"].map(str::to_owned);
        assert_eq!(command_line(&argv), "sh -c 'exit 7'");
        assert_eq!(command_line(&["a\0b".to_owned()]), "a\0b");
    }

    #[test]
    fn a_variant_reads_as_in_target_files() {
        let variant = Variant::SocketLbOff;
        assert_eq!(
            serde_json::to_value(variant).expect("a value"),
            variant.to_string()
        );
    }
}
