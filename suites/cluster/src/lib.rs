//! A cluster as cases use it, whichever provider has made it: a value with optional parts.
//!
//! ```text
//!  suites/targets ─▶ Target ─▶ providers (lab, kind, existing) ─▶ Cluster ─┬─ Description, kube::Client, pods
//!                                                                          ├─ NodeAccess?          processes on nodes
//!                                                                          ├─ AgentControl?        stopped, started, cleaned up
//!                                                                          ├─ ControlPlaneFaults?  ─▶ FaultLease
//!                                                                          └─ OutsideClient?       a client outside
//! ```
//!
//! A case uses the Kubernetes API ([`Cluster::client`]), places to run a process in ([`Cluster::exec`]) and the parts
//! of the provider ([`Cluster::agents`] …). A part declares its capabilities ([`Parts::capabilities`]); a case that
//! needs a [`Capability`] which the cluster lacks is skipped before the run. This crate knows no provider.
//!
//! Files: this one; `parts` (traits that providers implement); `assembled` (the value); `api` (API servers and their
//! faults); `family` (IPv4, IPv6); `processes` (their age); `fault_lease` (a fault for a limited time); `deviation`
//! (known differences of a target); `target/` (target files); `software` (versions and configuration found in a
//! cluster); `image` (container images of the project's programs); `dress` (security context and requests of pods);
//! `spawn` and `cgroup` (placing a process, for providers); `user_file` (files that a user names).

mod api;
mod assembled;
pub mod cgroup;
mod deviation;
pub mod dress;
mod family;
mod fault_lease;
pub mod image;
mod parts;
pub mod processes;
pub mod software;
pub mod spawn;
pub mod target;
pub mod user_file;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    num::NonZeroU32,
};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use serde::{Deserialize, Serialize};

use crate::software::Software;

pub use api::{
    ApiEndpoint, ApiEndpoints, ApiFault, ApiServer, Clients, Fault, LONGEST, Refusal, api_server_name, users,
};
pub use assembled::Cluster;
pub use deviation::{Deviation, Frontend};
pub use family::Family;
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
    /// Privileged processes on nodes; agents can be stopped and started.
    Node,
    /// A client outside the cluster.
    Outside,
    /// Pods with the host's network, or processes on the host.
    HostNetwork,
    /// Services of type LoadBalancer get addresses, of each family.
    LoadBalancerAddresses,
    /// API servers can be listed with their addresses.
    ApiServers,
    /// API servers can be stopped.
    ApiFaults,
    /// API servers can be kept from writing `default/kubernetes`.
    Unreconciled,
    /// Wrong, late and refused responses of API servers can be injected.
    WrongAnswers,
    /// There are several API servers, and they advertise one address or can be made to.
    SharedAddress,
    /// The state of nodes before their agents were installed is known.
    Baseline,
    /// The agent's cgroup has a parent that belongs to this cluster alone. A real node has no such parent; that of a
    /// node in a container is shared by all containers of the host.
    CgroupAbove,
    /// The agents' pins are known: the bpffs of a node belongs to the cluster alone, or the target lists its pins.
    AgentPins,
    /// The state that an agent keeps on its node between runs can be removed: the target documents how.
    AgentCleanup,
    /// Pods with a network of their own start on a node without an agent: the agents are not the CNI plugin.
    PodsWithoutAgents,
    /// Processes in pods can have a cgroup namespace of their own, beyond the one that the runtime has given the pod.
    CgroupNamespaces,
    /// Processes in pods and outside can send and capture raw packets.
    RawSockets,
    /// Every node names its zone by a label.
    Zones,
    /// A node can get a device whose other end is at the client outside. Both networks are on this machine, and cases
    /// may change them freely, as they end with the cluster.
    SecondNetwork,
    /// A node can lose its power for a while: from one moment to the next nothing of it runs, sends or answers.
    PowerLoss,
    /// The cluster is deleted at the end of the run, so it can hold thousands of Services.
    ThousandsOfServices,
    /// Agents can be started while no API server can be reached: nothing of the cluster is asked for it.
    StartsWithoutApi,
    /// A hop of [`NARROW`] bytes can be made: on the way to the client outside, and by routes of nodes to their pods.
    NarrowHop,
    /// Some of what an agent writes to its kernel can be made to fail.
    WriteFailures,
    /// The kernel of every node, and of the client outside, has SCTP.
    Sctp,
}

impl Capability {
    /// All of them. A variant that is not listed changes the length, and does not compile; the last one stays the last.
    pub const ALL: [Self; Self::Sctp as usize + 1] = [
        Self::Ipv4,
        Self::Ipv6,
        Self::ApiWrite,
        Self::Node,
        Self::Outside,
        Self::HostNetwork,
        Self::LoadBalancerAddresses,
        Self::ApiServers,
        Self::ApiFaults,
        Self::Unreconciled,
        Self::WrongAnswers,
        Self::SharedAddress,
        Self::Baseline,
        Self::CgroupAbove,
        Self::AgentPins,
        Self::AgentCleanup,
        Self::PodsWithoutAgents,
        Self::CgroupNamespaces,
        Self::RawSockets,
        Self::Zones,
        Self::SecondNetwork,
        Self::PowerLoss,
        Self::ThousandsOfServices,
        Self::StartsWithoutApi,
        Self::NarrowHop,
        Self::WriteFailures,
        Self::Sctp,
    ];
}

/// A node as cases see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name in the API.
    pub name: String,
    /// InternalIP addresses.
    pub addresses: Vec<IpAddr>,
}

/// Description of a cluster: printed before the run and written into reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// `lab`, `kind`, `existing`.
    pub provider: String,
    /// The target: `reference`, `mutant:NAME` …
    pub target: String,
    /// `uname -r` of the nodes.
    pub kernel: String,
    /// Nodes, sorted by name; at least one.
    pub nodes: Vec<Node>,
    /// Capabilities of the cluster.
    pub capabilities: BTreeSet<Capability>,
    /// Reasons for missing capabilities, where the cluster was examined for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacking: BTreeMap<Capability, String>,
    /// Optional features of the catalogue that the target claims to have.
    pub features: BTreeSet<String>,
    /// Claims of the catalogue that the target is known not to keep.
    pub deviations: Vec<Deviation>,
    /// The most endpoints that a node of the target can hold, where it has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_endpoints: Option<NonZeroU32>,
    /// API endpoints that the target documents.
    pub ways: ApiEndpoints,
    /// Other configurations that the target has.
    #[serde(default)]
    pub variants: BTreeSet<Variant>,
    /// Image of clients and backends, which replaces [`PROBE`] in manifests.
    #[serde(default = "probe")]
    pub image: String,
    /// Names of image pull Secrets, which have to exist in namespaces with pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<String>,
    /// The only namespace that the suite may use, if it may create none: cases run one after another in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
    /// Software found in the cluster, as far as it could be read.
    #[serde(default)]
    pub software: Software,
    /// Number of further nodes, which belong to cases that run at the same time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nodes_of_others: usize,
}

impl Description {
    /// Leaves all nodes but one to other cases. An unknown node changes nothing.
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

/// Bytes that a narrow hop takes: the smallest MTU of IPv6.
pub const NARROW: u32 = 1280;

/// The pattern that matches every pin of a node.
pub const EVERY_PIN: &str = "*";

/// Label of the suite's namespaces, and of its objects in others: the run that created them.
pub const RUN_LABEL: &str = "plumbline-run";

/// Label by which nodes name their zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The image of the probe in manifests, and in the embedded lab.
pub const PROBE: &str = "probe";

fn probe() -> String {
    PROBE.to_owned()
}

/// Environment variable with a folder for processes in [`Place::Host`], which is removed with the node. Without it,
/// they use the node's `/run`.
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

/// Written as `on the node node1`.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(formatter, "in the pod {namespace}/{name}"),
            Self::Host { node } => write!(formatter, "on the node {node}"),
            Self::Outside => formatter.write_str("on the client outside the cluster"),
        }
    }
}

/// A command line in shell syntax, for messages.
#[must_use]
pub fn command_line(argv: &[String]) -> String {
    let quoted = shlex::try_join(argv.iter().map(String::as_str));
    // Shell words can't contain a NUL.
    quoted.unwrap_or_else(|_| argv.join(" "))
}

/// Whether this kernel has SCTP; the kernel loads the module if it has it as one.
#[must_use]
pub fn kernel_has_sctp() -> bool {
    let (family, kind) = (AddressFamily::Inet, SockType::Stream);
    socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp).is_ok()
}

/// How an agent is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// SIGTERM, then SIGKILL if the agent does not end.
    Term,
    /// SIGKILL.
    Kill,
}

/// Another configuration of a target, as its target file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// No translation at sockets; packets are translated instead.
    SocketLbOff,
    /// Another datapath mode, such as iptables instead of nftables.
    OtherMode,
    /// Another release of it: another program.
    OtherRelease,
}

/// The name in target files.
impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SocketLbOff => "socket-lb-off",
            Self::OtherMode => "other-mode",
            Self::OtherRelease => "other-release",
        })
    }
}

/// The agent on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Process id in the node's PID namespace, while the agent runs.
    pub pid: Option<u32>,
    /// Number of starts.
    pub starts: u32,
    /// Result of `/readyz`; `None` without an answer.
    pub ready: Option<bool>,
    /// Exit status of the last run that ended, in words.
    pub last_exit: Option<String>,
    /// API endpoint that a case has set.
    pub way: Option<ApiEndpoint>,
    /// Configuration of the last start, if it was not the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<Variant>,
}

/// Why a cluster could not carry out a request. The error crosses process boundaries, so causes are text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterError {
    /// The place, node or pod does not exist.
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
        /// The request.
        what: Cow<'static, str>,
    },
    /// A fault lapsed before it was ended: what was seen under it proves nothing.
    #[error("the fault was over before it was ended, because its time was; let it last longer")]
    FaultLapsed,
    /// The request failed.
    #[error("failed to {what}: {why}")]
    Failed {
        /// The operation, which completes "failed to …".
        what: String,
        /// The cause.
        why: String,
    },
}

impl ClusterError {
    /// The cluster has no `what` of this name.
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

    /// The cluster failed to `what`, because of `why`.
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
        for variant in [Variant::SocketLbOff, Variant::OtherMode, Variant::OtherRelease] {
            assert_eq!(
                serde_json::to_value(variant).expect("a value"),
                variant.to_string()
            );
        }
    }
}
