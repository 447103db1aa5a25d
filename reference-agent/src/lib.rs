//! The reference service load balancer agent.
//!
//! ```text
//! Services, EndpointSlices, Nodes ─▶ reflect ─▶ decode ─▶ relist ─▶ model ─▶ plan ─▶ reconcile ─▶ LbMaps ─▶ eBPF maps
//!                                                            └──────── control ────────┘
//!                    cgroup, devices ◀─ attached, leftovers evicted ◀─ hooks ◀─ datapath ─▶ programs
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`endpoint_address`], [`names`] | addresses; identity as numbers |
//! | [`findings`] | parts of objects that can't be used, with reasons |
//! | [`decode`] | JSON of the API → the model's types, part by part |
//! | [`relist`] | a watch's lists and events → events without gaps |
//! | [`model`] | the API's objects, and the Services that an event affects |
//! | [`plan`], [`maglev`] | model → the contents of the maps: pure |
//! | [`reconcile`], [`ids`] | plan → writes, in an order that no packet can observe |
//! | [`maps`] | the maps as a trait: kernel, in memory, faulty |
//! | [`control`] | events → maps, without I/O: driven by tests and mutants, too |
//! | [`resolve`], [`dump`] | map contents → how each frontend is served, as text |
//! | [`feed`] | sources of events, and their queue to the control loop |
//! | [`reflect`], [`folder`] | watches of the API, or files of a folder → events |
//! | [`host`] | this machine: its addresses, and the kinds of its devices |
//! | [`api_access`] | connections to API servers that do not depend on the agent's own datapath |
//! | [`datapath`], [`hooks`] | programs at the node's cgroup and devices: attached, leftovers evicted |
//! | [`udp`] | ends flows and sockets of backends that no longer serve |
//! | [`pod_network`] | conflist, routes and masquerading for clusters without a CNI |
//! | [`probe`] | the agent's own probe through the programs |
//! | [`reports`]: [`readiness`], [`ledger`], [`metrics`] | every module reports to these |
//! | [`events`], [`health_checks`] | findings → Kubernetes Events; health check node ports |
//! | `hash` | hash maps and sets with a fast hash |
//! | `testing` | a node without a kernel, for tests and mutants |
//! | [`agent`], [`status`], [`cli`] | the process: assembly and control loop, HTTP endpoints, command line |
//!
//! **Law 1**: for every history of events, the maps equal `plan(model)` from scratch (`tests/agent/law.rs`); an event marks
//! every Service whose plan it changes (`tests/rules/law.rs`). `SERVICES.md` has the rules of plans, and `tests/rules` a
//! test of each.
//!
//! **Law 2**: the agent reaches its API server whatever happens to the API server's Service (`tests/node/own_way.rs`).
//!
//! **Law 3**: no program of an earlier load runs beside the current ones, or `/readyz` names it
//! (`tests/node/leftovers.rs`).
pub mod agent;
pub mod api_access;
pub mod cli;
pub mod control;
pub mod datapath;
pub mod decode;
pub mod dump;
pub mod endpoint_address;
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
pub mod udp;
