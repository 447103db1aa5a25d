//! Clusters of kind: makes clusters whose nodes are containers of this host's Docker, for a run, and removes them after it.
//!
//! ```text
//!  KindCluster ─▶ KubernetesCluster ─ Client ─▶ API server of the cluster
//!      │               └─ Cluster, of the parts
//!      │                    ├─ Places: nodes, pods, the outside client: setns + cgroup, found by containers' and pods' processes
//!      │                    ├─ KindAgents: a DaemonSet that stays away from labelled nodes
//!      │                    └─ KindControlPlane: the API servers
//!      ├─ LoadBalancers: addresses for Services, as long as this process has the cluster
//!      ├─ kind create ◀─ configuration (families, kube-proxy's mode, image of the nodes)
//!      └─ cluster::image ─▶ docker load, kind load image-archive: the probe, the agent
//! ```
//!
//! Promised: no registry is asked for anything but the image of the nodes, where that is not there. A cluster that did not
//! come up is removed at once; one whose run was killed, by the next run. The cgroup v2 root and the bpffs of a node are found
//! in its own mounts. Docker has to be this host's: processes are started in the namespaces of nodes and pods, as root.
//!
//! Left out: leading kube-proxy to the API by another way.
//!
//! Of the crate `existing` it has the cluster behind the API, and its way to name one; of `lab` network namespaces,
//! links and routes of this host, the front of API servers, and faults that a connection holds.
//!
//! Files: `config` (what is told), `kind_cluster` (made, found), `removal`, `programs` (of ours), `baseline` (what
//! nodes had before their agents), `places`,
//! `agent_control` and `control_plane` (the parts of it that cases use), `agents`, `api` (API servers, two that
//! share an address among them, and their faults), `manifests` (what the agent is deployed as), `images`, `outside`
//! (the client outside and its router), `way` (from the one through the other), `load_balancers` and `pool` (their
//! addresses), `inspected` (what Docker says of nodes), `containers` and `placing` (where things are on this host),
//! `tools` (Docker and kind), `state` (the folder of a cluster), `steps`, `error`, `limits`.

mod agent_control;
mod agents;
mod api;
mod baseline;
mod config;
mod containers;
mod control_plane;
mod error;
mod images;
mod inspected;
mod kind_cluster;
mod limits;
mod load_balancers;
mod manifests;
mod outside;
mod places;
mod placing;
mod pool;
mod programs;
mod removal;
#[cfg(test)]
mod served;
mod state;
mod steps;
mod tools;
mod way;

pub use api::{balance, keep};
pub use config::{Existing, KindConfig, KindTarget, PodNetwork};
pub use error::KindError;
pub use kind_cluster::KindCluster;
pub use limits::{LIMITS, Limits};
pub use load_balancers::give_back;
pub use removal::{Standing, down, kept, remove_dead, remove_if_dead};
pub use steps::Step;

/// Where programs are put on nodes, for processes that are no pod's.
const PROGRAMS: &str = "/var/lib/plumbline";
