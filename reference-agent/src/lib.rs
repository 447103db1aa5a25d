//! The reference service load balancer agent.
//!
//! ```text
//! Services, EndpointSlices, Nodes ─▶ reflect ─▶ decode ─▶ relist ─▶ model ─▶ plan ─▶ reconcile ─▶ LbMaps ─▶ eBPF maps
//!                                                            └──────── control ────────┘
//!                    cgroup, devices ◀─ attached, and alone ◀─ hooks ◀─ datapath ─▶ programs
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`transport`], [`names`] | addresses; identity as numbers |
//! | [`findings`] | what can't be used, and why |
//! | [`decode`] | JSON of the API → the model's types, part by part |
//! | [`relist`] | a watch's lists and events → events without gaps |
//! | [`model`] | what the API says; which Services an event touches |
//! | [`plan`], [`maglev`] | model → what the maps should say: pure |
//! | [`reconcile`], [`ids`] | plan → writes, in an order that no packet can tell |
//! | [`maps`] | where the control plane ends: kernel, in memory, faulty |
//! | [`control`] | events → maps, without I/O: what tests and mutants drive |
//! | [`resolve`], [`dump`] | map contents → what clients meet, as text |
//! | [`reflect`], [`folder`] | watches of the API, or files of a folder → events |
//! | [`host`] | this machine: addresses, and which devices lead where |
//! | [`api_access`] | how the agent reaches the API server without its own datapath |
//! | [`datapath`], [`hooks`] | programs at the node's cgroup and devices: attached, stale ones evicted |
//! | [`udp`] | flows and sockets of backends that serve no more: ended |
//! | [`pod_network`] | conflist, routes and masquerading for clusters without a CNI |
//! | [`probe`] | the agent's own probe through the programs |
//! | [`reports`]: [`board`], [`ledger`], [`metrics`] | what all parts report to |
//! | [`events`], [`health_checks`] | findings → Kubernetes Events; health check node ports |
//! | [`agent`], [`status`], [`cli`] | the process: loop, `/healthz` to `/dump`, command line |
//!
//! **Law 1**: for every history of events, what has been written equals `plan(model)` from scratch
//! (`tests/agent/law.rs`); an event marks every Service whose plan it changes (`tests/rules/law.rs`). What the plan is
//! made of is said in `SERVICES.md`, and held rule by rule in `tests/rules`.
//!
//! **Law 2**: the agent finds its API server again, whatever becomes of the Service that leads there
//! (`tests/node/own_way.rs`).
//!
//! **Law 3**: no program of an earlier load decides beside those of now, or `/readyz` names it
//! (`tests/node/leftovers.rs`).
pub mod agent;
pub mod api_access;
pub mod cli;
pub mod control;
pub mod datapath;
pub mod decode;
pub mod dump;
pub mod events;
pub mod feed;
pub mod findings;
pub mod folder;
mod hash;
pub mod health_checks;
pub mod hooks;
pub mod host;
pub mod ids;
pub mod ledger;
pub mod maglev;
pub mod maps;
pub mod metrics;
pub mod model;
pub mod names;
pub mod plan;
pub mod pod_network;
pub mod probe;
pub mod readiness;
pub mod reconcile;
pub mod reflect;
pub mod relist;
pub mod reports;
pub mod resolve;
pub mod status;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;
pub mod udp;
