//! The embedded lab: makes a cluster of network namespaces on this host, with nodes, pods and an outside client.
//!
//! ```text
//!  LabCluster ─(control.sock)─▶ supervisor: plumbline lab supervise
//!      │                           ├─ api/          API servers, on the underlay and on this host's loopback
//!      │                           ├─ controllers   EndpointSlices, load balancers, scheduling
//!      │                           ├─ kubelet × N   pods: netns + veth + cgroup, running `plumbline probe`
//!      │                           ├─ agent × N     in its node's namespaces and a cgroup of its own
//!      └─ exec: setns + cgroup     └─ underlay      bridge ─ nodes, API server, outside client
//! ```
//!
//! Guarantees: this host's own namespaces get nothing but processes (no link, address, route, mount or named
//! namespace). When a lab ends, its processes end with it. A SIGKILL leaves a folder and empty cgroups, which the
//! next `up` or `down` removes.
//!
//! Files: for users `client`, `access` and `parts` (the lab as a cluster), `config`, `families`, `name`, `limits`,
//! `error`, `evidence`, `counters`; for the supervisor `supervisor` (start and end), `lab` (its state), `control`
//! (requests), `api/`, `agent`, `redirection`, `health`, `kernel_writes`, `kubelet/`, `underlay`, `topology`, and the faults
//! `power`, `narrow_hop`, `watched_writes`; between the two `protocol`, `request`, `start`, `start_events`; for the host `host` (requirements of a lab), `needs` (requirements of a target),
//! `program` (paths of programs), `dir`, `leftovers`, `cgroup`, `own_hierarchy` (in a container); for kernel objects `netns`, `links`, `mounts`,
//! `process_end`; `balancer` (routes to load balancers), `backoff`,
//! `cpu_time` (of a lab's programs); for tests `stale_connections`.

mod access;
mod agent;
mod api;
mod backoff;
mod balancer;
mod cgroup;
mod client;
mod config;
mod control;
mod counters;
mod cpu_time;
mod dir;
mod error;
mod evidence;
mod families;
mod health;
mod host;
mod kernel_writes;
mod kubelet;
mod lab;
mod leftovers;
mod limits;
mod links;
mod mounts;
mod name;
mod narrow_hop;
mod needs;
mod netns;
mod own_hierarchy;
mod parts;
mod power;
mod process_end;
mod program;
mod protocol;
mod redirection;
mod request;
#[cfg(any(test, feature = "testing"))]
pub mod stale_connections;
mod start;
mod start_events;
mod supervisor;
mod topology;
mod underlay;
mod watched_writes;

pub use client::{LabCluster, Lifetime, down, labs, remove_dead, standing};
pub use config::{Advertise, AgentCommand, ControlPlane, LabConfig};
pub use error::LabError;
pub use families::IpFamilies;
pub use leftovers::Downed;
pub use limits::{LIMITS, Limits};
pub use name::{DEFAULT_NAME, check_name};
pub use own_hierarchy::own_hierarchy;
pub use program::{KUBERNETES, sibling};
pub use protocol::{ActiveApiFault, NodeStatus, PodView, Status};
use start::SupervisorGuard;
pub use supervisor::supervise;
// Shared with the crate kind.
pub use {
    api::{Front, Proxies, Through, is_ready as api_is_ready, kube_client_as, kube_client_at},
    balancer::{Nodes, Router, follow},
    counters::counters,
    dir::named_in,
    health::ready as agent_is_ready,
    links::{Links, Via},
    netns::NetNs,
    topology::everything,
    underlay::{BY_CONNECTION_IPV4, BY_CONNECTION_IPV6, EVERY_REFUSAL_IPV4, EVERY_REFUSAL_IPV6},
};
