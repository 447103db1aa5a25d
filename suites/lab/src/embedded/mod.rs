//! The embedded lab: nodes, pods and an outside client as namespaces of this host.
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
//! Promised: this host's own namespaces get nothing but processes (no link, address, route, mount or named
//! namespace); however a lab ends, its processes end with it; what is left after a SIGKILL is a folder and empty
//! cgroups, and the next `up` or `down` removes them.
//!
//! Files: for users `config`, `target`, `client`, `held`, `limits`, `error`, `evidence`; the supervisor is `supervisor` (its life),
//! `lab` (what it holds), `control` (requests), `api/`, `agent`, `health`, `kubelet/`, `node`, `topology`; between the two `protocol`,
//! `request`, `start`, `output`; on the host `needs` (what a target asks of its kernel), `dir`, `leftovers`, `cgroup`; kernel objects `netns`, `links`,
//! `mounts`, `spawn`; `balancer` (routes to load balancers), `backoff`.

mod agent;
mod api;
mod backoff;
mod balancer;
mod cgroup;
mod client;
mod config;
mod control;
mod dir;
mod error;
mod evidence;
mod health;
mod held;
mod kubelet;
mod lab;
mod leftovers;
mod limits;
mod links;
mod mounts;
mod needs;
mod netns;
mod node;
mod output;
mod protocol;
mod request;
mod spawn;
mod start;
mod supervisor;
mod target;
mod topology;

pub use client::{LabCluster, Lifetime, down, labs, remove_dead};
pub use config::{
    Advertise, AgentCommand, ControlPlane, DEFAULT_NAME, IpFamilies, LabConfig, check_name, sibling,
};
pub use error::LabError;
pub use held::HeldApiFault;
pub use leftovers::Downed;
pub use limits::{LIMITS, Limits};
pub use protocol::{ActiveApiFault, NodeStatus, PodView, Status};
use start::Leash;
pub use supervisor::supervise;
pub use target::{KUBERNETES, Need, Ready, Target};
