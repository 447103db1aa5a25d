//! Clusters of Kubernetes, by a kubeconfig: whatever runs in them.
//!
//! ```text
//!  KubernetesCluster ─ Client ──────────────▶ API server: objects, logs, access reviews
//!      │                                          ▲
//!      ├─ exec: `plumbline exec-in-pod` ──────────┘  pods/exec, a WebSocket; dropped: the program ends with its stdin
//!      ├─ Guard: a namespace, a Lease and a pod on each node, as long as the run
//!      └─ Extension: what this cluster has beside the API (agents, a client outside, faults)
//! ```
//!
//! Promised: nothing is touched that the suite has not made, and all that it makes has the run's label. What the account
//! may not do is found out before anything is made ([`KubernetesCluster::survey`]); what a cluster lacks is no capability
//! of it.
//!
//! Files: `options` (what is told), `cluster` (the trait), `survey` and `rights` (what is read before), `scouts` (nodes
//! that can't be read), `guard`, `lease` and `pods` (the run's hold of it), `extension` (what differs between clusters),
//! `installed` (agents that a target names, which are looked at), `exec` (a program in a pod, and its pipes),
//! `error`, `limits`.
mod cluster;
mod error;
mod exec;
mod extension;
mod guard;
mod installed;
mod lease;
mod limits;
mod options;
mod pods;
mod rights;
mod scouts;
mod survey;

pub use cluster::{About, KubernetesCluster};
pub use error::KubernetesError;
pub use exec::{ExecArguments, exec_in_pod};
pub use extension::{ApiOnly, Extension};
pub use guard::Guard;
pub use installed::{Agents, extension};
pub use lease::{Holder, holder, remove_lease};
pub use limits::{LIMITS, Limits};
pub use options::{Connection, Options, Tested, Tier};
pub use rights::rules;
