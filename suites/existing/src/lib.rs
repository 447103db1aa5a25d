//! Clusters of Kubernetes: finds one by a kubeconfig, whatever runs in it.
//!
//! ```text
//!  KubernetesCluster ─ Client ──────────────▶ API server: objects, logs, access reviews
//!      │                                          ▲
//!      ├─ exec: `plumbline exec-in-pod` ──────────┘  pods/exec, a WebSocket; dropped: the program ends with its stdin
//!      │    └─ `plumbline on-node`, in a privileged pod ─▶ a process on its node, outside any pod
//!      ├─ Guard: a namespace, a Lease and a pod on each node, as long as the run
//!      └─ cluster() ─▶ Cluster: pods, nodes and agents by the API, or by what its provider has (Own)
//! ```
//!
//! Promised: nothing is touched that the suite has not made, and all that it makes has the run's label; but under
//! [`Tier::Node`], agents are stopped and started of a target that is named, and what was changed for it is given back.
//! What the account may not do is found out before anything is made ([`KubernetesCluster::survey`]); what a cluster
//! lacks is no capability of it.
//!
//! Files: `options` (what is told), `kubeconfig` (the files that name the API server), `kubernetes_cluster` (looked at,
//! and assembled), `survey` and `rights` (what is read before), `scouts` (nodes that can't be read), `api_servers` (those that
//! `default/kubernetes` lists), `secrets` (by which images are pulled), `labels`, `guard`, `lease`, `holders`, `note` and `pods`
//! (the run's hold of it), `installed` (agents that a target names),
//! `agents` and `daemon_set` (what is done to them), `hosts` (nodes, asked through the run's pods), `on_node` and
//! `container` (what runs there for it), `exec` (a program in a pod, and its pipes), `proxy` (the way to the API),
//! `error`, `limits`.

mod agents;
mod api_servers;
mod container;
mod daemon_set;
mod error;
mod exec;
mod guard;
mod holders;
mod hosts;
mod installed;
mod kubeconfig;
mod kubernetes_cluster;
mod labels;
mod lease;
mod limits;
mod note;
mod on_node;
mod options;
mod pods;
mod proxy;
mod rights;
mod scouts;
mod secrets;
mod software;
mod survey;

pub use container::container_process;
pub use daemon_set::give_back;
pub use error::KubernetesError;
pub use exec::{ExecArguments, exec_in_pod};
pub use guard::Guard;
pub use holders::{Holder, holders};
pub use kubernetes_cluster::{About, ApiPods, KubernetesCluster, Own};
pub use lease::{LeaseState, LeaseWatch, left_on_nodes, remove_lease};
pub use limits::{LIMITS, Limits};
pub use note::Left;
pub use on_node::{Host, OnNodeError, host, on_node};
pub use options::{Agents, Connection, Options, PodOptions, Tested, Tier};
pub use rights::rules;
pub use survey::processors;
