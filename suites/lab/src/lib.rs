//! Clusters to test in: the [`Cluster`](cluster::Cluster) trait and its providers.
//!
//! ```text
//!  case ─▶ Cluster ─┬─ embedded: namespaces on this host, our API server and kubelet
//!                   └─ (more providers: real Kubernetes)
//! ```
//!
//! Files: `cluster` (what a case sees), `embedded/` (the default provider; its own page draws it).
pub mod cluster;
pub mod embedded;
