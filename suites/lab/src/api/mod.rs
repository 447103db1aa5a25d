//! The lab's API servers and their endpoints.
//!
//! ```text
//!  outside client ─▶ front (underlay) ─────────┐
//!  controllers ────▶ front (host's loopback) ──┼─▶ server 1, 2 … (each its address and faults) ─▶ store
//!  agents ─────────▶ by turns, or the front ───┘                                                  ▲
//!  administrator, harness, kubelets ─▶ a server that never stops (host's loopback) ───────────────┘
//! ```
//!
//! Agents use the front when the servers advertise its address ([`Advertise::Shared`](super::Advertise)): then only
//! the front knows the servers.
//!
//! With [`ControlPlane::programs`](super::ControlPlane) etcd, kube-apiserver and most controllers are Kubernetes'
//! own. Response faults need the lab's own servers, and the administrator uses a front as well.
//!
//! Files: `access` (certificates and kubeconfigs), `front` (the load balancer), `servers` (start and stop),
//! `programs` (Kubernetes' own), `faults` (active faults).

mod access;
mod faults;
mod front;
mod programs;
mod servers;

pub(super) use {access::kube_client, servers::ApiServers};
pub use {
    access::{kube_client_as, kube_client_at},
    front::{Front, Proxies, Through},
    programs::is_ready,
};
