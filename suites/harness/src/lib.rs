//! What a case is made of.
//!
//! ```text
//! Case (data) ─▶ execute ─▶ Context: namespaces, client pods, the suite's own watch, the fence
//!                              │  create, patch ─▶ Kubernetes API ─▶ own watch has the resourceVersion
//!                              │  control, witness, judge, hold ─▶ probe clients ─▶ attempts ─▶ oracle
//!                              ▼
//!                           History (every write, version and probe with its time)
//!                              ▼
//!                 axes ─▶ Verdict; evidence before clean-up; CaseReport
//! ```
//!
//! - `limits.rs`: every limit, documented; no case has one of its own.
//! - `case.rs`: a case as data, and what a cluster must have for it; `of_target.rs`: and the target. `addresses.rs`: who gives
//!   load balancers their addresses. `verdict.rs`, `report.rs`: what comes out.
//! - `context.rs`, `execute.rs`: the session of one case, from its namespaces to their removal (`cleanup.rs`).
//!   `axes.rs`: the verdicts of its axes. `effect.rs`: what a row leans on, and what breaks another claim. `quick.rs`: one axis of each row.
//! - `frontends.rs`: what leads to a Service, and who dials it.
//! - `objects.rs`, `manifest.rs`, `pods.rs`, `watch.rs`: objects, and the suite's own watch of them. `sending.rs`:
//!   requests that may be sent again.
//! - `client.rs`, `target.rs`, `probing.rs`, `background.rs`: probes. `flows.rs`: established flows. `sockets.rs`: sockets that
//!   are kept, and led to one destination after the other.
//!   `fragments.rs`: datagrams that are too large for one packet.
//!   `sticking.rs`: whether unconnected sockets keep to one backend. `repeated.rs`: datagrams that go on with a flow of before.
//! - `fence.rs`: the proof that a write has been handled. `history/`: the record of it all, in files that
//!   are compressed as they are written (`compressed.rs`). `evidence.rs`: what is kept of it, and besides it.
//! - `readiness.rs`: ready means served, watched through every run about outages, leftovers and restarts.
//! - `recovery/`: what a recovery needed, for a row that is judged over many cases.
//! - `servers.rs`: servers that are no pods. `commands.rs`: changes of nodes and of the client outside.
//! - `machine.rs`: packets that this machine had no room for. `turns.rs`: who may probe as fast as clients can, on a machine that
//!   is the cluster.
//! - `logs.rs`: what backends have logged. `spent.rs`: what a case spends its time on.
//! - `waiting.rs`: bounded waits for conditions. `api_faults.rs`: what is wrong with the API servers meanwhile.
pub mod addresses;
pub mod api_faults;
pub mod axes;
pub mod background;
pub mod case;
pub mod cleanup;
pub mod client;
pub mod commands;
pub mod compressed;
pub mod context;
pub mod effect;
pub mod evidence;
pub mod execute;
pub mod fence;
pub mod flows;
mod fragments;
pub mod frontends;
pub mod history;
pub mod limits;
mod logs;
mod machine;
pub mod manifest;
mod names;
pub mod objects;
pub mod of_target;
pub mod pods;
pub mod probing;
pub mod quick;
mod readiness;
pub mod recovery;
mod repeated;
pub mod report;
mod sending;
pub mod servers;
pub mod sockets;
pub mod spent;
mod sticking;
pub mod target;
pub mod turns;
pub mod verdict;
pub mod waiting;
pub mod watch;
