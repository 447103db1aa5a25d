//! The lab's control plane: a small API server that speaks the real protocol.
//!
//! ```text
//!  listener ─▶ serve ─▶ http (auth, paths, bodies) ─▶ Store ─▶ History ─▶ watches, lists at a version
//!                          │                            │
//!                          ├─ discovery, openapi        ├─ kinds: defaults, validation, lifecycle
//!                          ├─ table                     ├─ patch: JSON, merge, strategic merge
//!                          └─ kubelet: logs, exec,       └─ managed: server-side apply, who owns which field
//!                             proxy of pods
//! ```
//!
//! One [`Store`] is the cluster; any number of [`Replica`]s are its API servers, each with its own [`Faults`] or
//! sharing them ([`serve()`] alone is a server that advertises nothing). Nothing is written to disk. kubectl, client-go informers and kube-rs work against it unmodified.
//!
//! Promised: one global resourceVersion; every watcher sees every change of its kind in the order of these
//! versions or is told 410; objects read as upstream would show them; every buffer is bounded (see [`Config`]).
//!
//! [`Proxy`] lets the same faults meet clients of Kubernetes' own API server.
//!
//! Files: `config` (bounds), `pki` and `auth` (trust), `replica` (one API server's life), `serve` (connections),
//! `faults/` (what goes wrong for clients), `proxy/` (the same in front of another server), `kubelet` (what nodes are asked), `http/` (requests), `store/`
//! (objects, history, deletion, addresses), `kinds/` (what each kind defaults and refuses), `patch/`, `managed/` (who owns
//! which field), `protobuf/` (what Go clients send), `selector`, `table/`, `discovery`, `openapi`, `status` (how it says no).

mod auth;
mod config;
mod discovery;
pub mod faults;
mod http;
mod kinds;
pub mod kubelet;
mod managed;
mod openapi;
mod patch;
mod pki;
mod protobuf;
mod proxy;
mod replica;
mod respond;
mod selector;
mod serve;
mod status;
mod store;
mod table;

pub use auth::{Auth, new_token};
pub use config::{Config, ConfigError};
pub use faults::Faults;
pub use pki::{Pki, PkiError, kubeconfig, write_kubeconfig};
pub use proxy::{Keys, Proxy, ProxyError};
pub use replica::{Replica, ReplicaConfig};
pub use serve::{ServeError, serve};
pub use status::Status;
pub use store::{RestingReconciler, Store};
