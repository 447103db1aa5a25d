//! The lab's control plane: a small API server that speaks the real protocol.
//!
//! ```text
//!  listener ─▶ serve ─▶ http (auth, paths, bodies) ─▶ Store ─▶ History ─▶ watches, lists at a version
//!                          │                            │
//!                          ├─ discovery, openapi        ├─ kinds: defaults, validation, lifecycle
//!                          ├─ table                     ├─ patch: JSON, merge, strategic merge
//!                          └─ kubelet: logs, exec,       └─ managed: server-side apply, owners of fields
//!                             proxy of pods
//! ```
//!
//! One [`Store`] is the cluster; any number of [`Replica`]s are its API servers, which have their own [`Faults`] or share them.
//! [`serve()`] alone is a server that advertises nothing. Nothing is written to disk. kubectl, client-go informers and kube-rs
//! work against it unmodified.
//!
//! Guarantees: one global resourceVersion; every watcher gets all changes of its kind in the order of these versions, or 410;
//! objects read as upstream would show them; every buffer is bounded (see [`Config`]).
//!
//! [`InMemory`] (`in_memory`) is one for clients of the same process. [`Proxy`] applies the same faults to clients of Kubernetes' own API server.
//!
//! Modules import in one direction: `status` (errors), `respond` (responses) and `kinds` (defaults and validation of each
//! kind) are at the bottom; `patch/`, `server_side_apply/` (server-side apply), `selector` and `printers/` use them; `store/` (objects,
//! history, deletion, addresses) is above these; `faults/` decide what clients see of it; `http/` answers requests, with
//! `discovery`, `openapi`, `protobuf/` and `kubelet`; `serve` has the connections, `replica` the life of a server, and
//! `proxy/` applies faults in front of another one. `config` has the bounds, `auth` and `pki` the tokens and certificates.

mod auth;
mod config;
mod discovery;
pub mod faults;
mod http;
mod in_memory;
mod kinds;
pub mod kubelet;
mod openapi;
mod patch;
mod pki;
mod printers;
mod protobuf;
mod proxy;
mod replica;
mod respond;
mod selector;
mod serve;
mod server_side_apply;
mod status;
mod store;

pub use auth::{Auth, new_token};
pub use config::{Config, ConfigError};
pub use faults::Faults;
pub use in_memory::InMemory;
pub use pki::{Pki, PkiError, kubeconfig, write_kubeconfig};
pub use proxy::{Keys, Proxy, ProxyError};
pub use replica::{Replica, ReplicaConfig};
pub use serve::{ServeError, serve};
pub use status::Status;
pub use store::{RestingReconciler, Store};
