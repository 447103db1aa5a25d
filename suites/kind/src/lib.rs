//! Clusters of kind: creates clusters whose nodes are containers of this host's Docker, and removes them after the
//! run.
//!
//! ```text
//!  KindCluster ─▶ KubernetesCluster ─ Client ─▶ API server of the cluster
//!      │               └─ Cluster, of the parts
//!      │                    ├─ Places: nodes, pods, the outside client: setns + cgroup, found by containers' and pods' processes
//!      │                    ├─ existing::InstalledAgents, with processes that are found on this host
//!      │                    └─ KindControlPlane: the API servers
//!      ├─ LoadBalancers: addresses for Services, as long as this process has the cluster
//!      ├─ kind create ◀─ configuration (families, kube-proxy's mode, image of the nodes)
//!      └─ cluster::image ─▶ docker load, kind load image-archive: the probe, the agent
//! ```
//!
//! Guarantees: only the image of the nodes is ever pulled from a registry, if it is missing. A cluster that does not
//! start is removed at once; that of a killed run, by the next run. Paths of a node's cgroup v2 root and bpffs come
//! from its own mounts. Docker has to run on this host: processes are started in the namespaces of nodes and pods, as
//! root.
//!
//! Not supported: another API endpoint for kube-proxy in a case.
//!
//! Shared code: of `existing`, the cluster behind the API, its connection and its agents; of `lab`, network namespaces,
//! links and routes of this host, the front of API servers, and faults held by a connection.
//!
//! Files: `config` (settings), `kind_cluster` (created or reused), `plain_cluster` (one without a target), `removal`, `programs` (the project's programs),
//! `baseline` (state of nodes before their agents), `access` (pods, nodes and the outside client), `agents` and
//! `control_plane` (other parts for cases), `api` (API servers, a second one, and their faults), `manifests` and
//! `deployment` (the agent's objects, and kube-proxy's), `images`, `outside` (the outside client and its router),
//! `outside_route` (routes from client to router), `load_balancers` and `pool` (their addresses), `docker_inspect`
//! (output of `docker inspect`), `containers` and `process_lookup` (namespaces, paths and processes on this host),
//! `tools` (Docker and kind), `state` (the folder of a cluster), `steps`, `error`, `limits`.

mod access;
mod agents;
mod api;
mod baseline;
mod config;
mod containers;
mod control_plane;
mod deployment;
mod docker_inspect;
mod error;
mod images;
mod kind_cluster;
mod limits;
mod load_balancers;
mod manifests;
mod outside;
mod outside_route;
mod plain_cluster;
mod pool;
mod process_lookup;
mod programs;
mod removal;
mod state;
mod steps;
#[cfg(test)]
mod test_api;
mod tools;

pub use api::{balance, keep};
pub use config::{Existing, KindConfig, KindTarget, PodNetwork};
pub use error::KindError;
pub use kind_cluster::KindCluster;
pub use limits::{LIMITS, Limits};
pub use load_balancers::give_back;
pub use plain_cluster::PlainCluster;
pub use removal::{Standing, dead, down, kept, remove_dead, remove_if_dead, standing};
pub use steps::Step;

/// Folder of the project's programs on nodes, for processes outside of pods.
const PROGRAMS: &str = "/var/lib/plumbline";
