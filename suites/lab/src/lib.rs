//! Clusters to test in: the [`Cluster`](cluster::Cluster) trait and its providers.
//!
//! ```text
//!  case ─▶ Cluster ─┬─ embedded: namespaces on this host, our API server and kubelet
//!                   └─ kubernetes: any cluster, by a kubeconfig ◀─ kind: one of containers, made for the run
//! ```
//!
//! Files: `cluster` (what a case sees), `embedded/` (the default provider), `kubernetes/` (clusters that are there), `kind/`
//! (clusters that are made of containers); their own pages draw them; `target/` (what is under test: the files of
//! `suites/targets`); `image` (what clusters that run images are given); `dress` (what pods ask for); `user_file` (files that a
//! user names).
pub mod cluster;
pub mod dress;
pub mod embedded;
pub mod image;
pub mod kind;
pub mod kubernetes;
pub mod software;
pub mod target;
pub mod user_file;
