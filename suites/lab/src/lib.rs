//! Clusters to test in: providers of the [`Cluster`](cluster::Cluster) trait.
//!
//! ```text
//!  case ─▶ Cluster ─┬─ embedded: namespaces on this host, our API server and kubelet
//!                   └─ kubernetes: any cluster, by a kubeconfig ◀─ kind: one of containers, made for the run
//! ```
//!
//! Files: `embedded/` (the default provider), `kubernetes/` (clusters that are there), `kind/` (clusters that are made of
//! containers); their own pages draw them.
pub mod embedded;
pub mod kind;
pub mod kubernetes;
