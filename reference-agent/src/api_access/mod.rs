//! The agent's own way to the API server: what keeps it able to see when the Service that it reaches the API server
//! through has no backends.
//!
//! ```text
//! kubeconfig, --api-server ─┐                ┌─▶ dialled in turn ─▶ TLS, verified against the one original name
//! endpoints that were seen ─┴─▶ ApiServers ──┤
//!      └─▶ state file, for the next start    └─▶ addresses: frontends that are kept for the agent's own cgroup
//! ```
//!
//! Three memories, each of which is enough: the programs let the sockets of the agent's [`cgroup`] go on using the last
//! good backends of a kept frontend (`ebpf/DATAPATH.md`, "Sockets"); the endpoints that were seen last are dialled
//! themselves ([`ApiServers::learn`]); further addresses can be given. Everybody else sees the truth.
//!
//! | file | what |
//! |---|---|
//! | `servers` | [`ApiServers`]: which addresses there are, and in which order they are tried |
//! | `configured` | a server as the configuration names it, and where its name leads |
//! | `dial` | one connection: all addresses, one after the other and side by side |
//! | `client` | a Kubernetes client whose connections are made so |
//! | `identity` | the client certificate of a kubeconfig that names files |
//! | `feed` | which addresses there are, told as they change |
//! | `learn` | which Services lead to API servers, and which endpoints they have |
//! | `state` | what is remembered from one start to the next |
//! | `flags` | the command line |
//! | [`cgroup`] | the cgroup in which the agent is alone |
//!
//! # Bounds
//! [`CANDIDATES`] addresses, of them [`REMEMBERED`] from endpoints; [`CONNECT_LIMIT`] for one address, tries begin
//! [`STAGGER`] apart; names are asked for again after [`NAMES_FRESH`], for at most [`NAME_LIMIT`]; what could not be stored is tried again after
//! [`STORE_AGAIN`].

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
    cgroup::{NoOwnCgroup, OwnCgroup},
    client::{KEEPALIVE, READ_LIMIT, RETRY_AFTER_LIMIT, UNACKNOWLEDGED},
    dial::{CONNECT_LIMIT, STAGGER},
    flags::{Memory, OwnFlags},
    servers::{
        ApiServers, BLIND_LIMIT, CANDIDATES, NAME_LIMIT, NAMES_FRESH, OwnWayError, REMEMBERED, STORE_AGAIN,
    },
    state::{STATE_FILE, STATE_MOST},
};
