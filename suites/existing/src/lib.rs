//! Clusters by a kubeconfig, of any distribution.
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
//! Guarantees: only objects of the suite are changed, and all of them have the run's label. Under [`Tier::Node`],
//! agents of a named target are stopped and started, and the changes for that are reverted. The account's permissions
//! are checked before anything is created ([`KubernetesCluster::survey`]); a feature that the cluster lacks is not
//! among its capabilities.
//!
//! Files: `options` (options of a run), `kubeconfig` (its files), `kubernetes_cluster` (survey and assembly),
//! `survey` and `rights` (checks before the run), `node_discovery` (finds nodes that can't be listed), `api_servers`
//! (endpoints of `default/kubernetes`), `secrets` (image pull Secrets), `labels`, `guard`, `lease`, `holders`, `lease_note`
//! and `pods` (the run's hold of the cluster), `agents` (the agents of a target: observed, stopped, started,
//! reconfigured, cleaned up after), `node_access` (access to nodes through the run's pods), `on_node` and `container`
//! (programs in these pods), `exec` (a program in a pod, and its pipes), `indexed_job` (a program in many pods, for compute), `http_proxy` (HTTP proxy of the API server),
//! `software` (versions and configuration), `error`, `limits`.

mod agents;
mod api_servers;
mod container;
mod error;
mod exec;
mod guard;
mod holders;
mod http_proxy;
mod indexed_job;
mod kubeconfig;
mod kubernetes_cluster;
mod labels;
mod lease;
mod lease_note;
mod limits;
mod node_access;
mod node_discovery;
mod on_node;
mod options;
mod pods;
mod rights;
mod secrets;
mod software;
mod survey;

pub use agents::{CustomAgents, InstalledAgents, Processes, give_back};
pub use container::container_process;
pub use error::KubernetesError;
pub use exec::{ExecArguments, exec_in_pod};
pub use guard::Guard;
pub use holders::{Holder, holders};
pub use indexed_job::{IndexedJob, IndexedJobOptions, LeftJob, Look, PodEnd, left_jobs};
pub use kubernetes_cluster::{About, ApiPods, KubernetesCluster, Own};
pub use lease::{LeaseState, LeaseWatch, left_on_nodes, remove_lease};
pub use lease_note::Left;
pub use limits::{LIMITS, Limits};
pub use on_node::{Host, OnNodeError, host, on_node};
pub use options::{Agents, Connection, Options, PodOptions, Tested, Tier};
pub use rights::rules;
pub use survey::processors;
