//! The lab's API servers, and the ways to them.
//!
//! ```text
//!  outside client ─▶ front (underlay) ─────────┐
//!  controllers ────▶ front (host's loopback) ──┼─▶ server 1, 2 … (each its address and faults) ─▶ store
//!  agents ─────────▶ by turns, or the front ───┘                                                  ▲
//!  administrator, harness, kubelets ─▶ a server that never stops (host's loopback) ───────────────┘
//! ```
//!
//! Agents ask the front when the servers advertise its address ([`Advertise::Shared`](super::Advertise)): then only
//! the front knows how many there are.
//!
//! With [`ControlPlane::programs`](super::ControlPlane) the servers are Kubernetes' own, over etcd, and so are most
//! controllers; nobody can make these answer wrongly, and the administrator asks a front as well.
//!
//! Files: `access` (who may ask, and by which file), `front` (a load balancer before them), `servers` (their life),
//! `programs` (Kubernetes' own), `faults` (what is wrong with them just now).

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
