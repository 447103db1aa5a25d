//! How the agent connects to API servers, also while the Service of the API server has no backends.
//!
//! ```text
//! kubeconfig, --api-server ─┐                ┌─▶ dialled in turn ─▶ TLS, verified against the kubeconfig's host
//! endpoints seen last ──────┴─▶ ApiServers ──┤
//!      └─▶ state file, for the next start    └─▶ addresses: frontends whose backends are kept for the agent's cgroup
//! ```
//!
//! Any of three is enough: the programs let sockets of the agent's [`cgroup`] use the last good backends of such a
//! frontend (`ebpf/DATAPATH.md`, "Sockets"); the endpoints that were seen last are dialled directly
//! ([`ApiServers::learn`]); more addresses can be given by `--api-server`. For other processes nothing is kept.
//!
//! | file | what |
//! |---|---|
//! | `servers` | [`ApiServers`]: the addresses, and the order in which they are tried |
//! | `configured` | a server of the configuration, and the addresses of its name |
//! | `dial` | one connection: all addresses, staggered |
//! | `client` | a Kubernetes client with such connections |
//! | `identity` | the client certificate of a kubeconfig that names files |
//! | `feed` | the addresses, as events |
//! | `learn` | Services of API servers, and their endpoints |
//! | `state` | the state file |
//! | `flags` | the command line |
//! | [`cgroup`] | the agent's own cgroup |
//!
//! # Bounds
//! [`CANDIDATES`] addresses, of them [`REMEMBERED`] from endpoints; [`CONNECT_LIMIT`] for one address, tries begin
//! [`STAGGER`] apart; names are resolved again after [`NAMES_FRESH`], for at most [`NAME_LIMIT`]; a failed write of the
//! state file is tried again after [`STORE_AGAIN`].

pub mod cgroup;
mod client;
mod configured;
mod dial;
mod feed;
mod flags;
mod identity;
mod learn;
mod servers;
mod state;

pub use self::{
    cgroup::{OwnCgroup, OwnCgroupError},
    client::{KEEPALIVE, READ_LIMIT, RETRY_AFTER_LIMIT, UNACKNOWLEDGED},
    dial::{CONNECT_LIMIT, STAGGER},
    flags::{ApiAccessFlags, StateAccess},
    servers::{
        ApiAccessError, ApiServers, CANDIDATES, NAME_LIMIT, NAMES_FRESH, REMEMBERED, STORE_AGAIN,
        UNANSWERED_LIMIT,
    },
    state::{STATE_FILE, STATE_MOST},
};
