//! What a case is made of.
//!
//! ```text
//! Case (data) ─▶ execute ─▶ Context: the session of one case: names, clients, the suite's own watch
//!                              │  Objects: create, patch ─▶ Kubernetes API ─▶ own watch has the resourceVersion
//!                              │  probing: control, witness, judge ─▶ probe clients ─▶ attempts ─▶ oracle
//!                              ▼
//!                           History (every write, version and probe with its time)
//!                              ▼
//!                 Axes ─▶ Verdict; evidence before clean-up; CaseReport
//! ```
//!
//! Layers, the lowest first. A module imports only what is listed before it (`cargo xtask tidy --graph`):
//!
//! - Values: `limits.rs` (every limit, documented; no case has one of its own), `verdict.rs`, `names.rs` (what objects
//!   are called), `manifest.rs`, `waiting.rs` (bounded waits), `time_spent.rs` (what a case spends its time on), `report/`
//!   (what a case leaves).
//! - Records: `compressed.rs`, `history/`, `record.rs` (what is not judged), `axes.rs` (the axes that run and their verdicts).
//! - The API: `requests.rs` (which may be sent again), `watch.rs` (the suite's own), `dressing.rs`, `objects.rs`, `pods.rs`,
//!   `conditions.rs` (of endpoints in hand-written slices), `own_services.rs` (the signal of fences, control Services),
//!   `cleanup.rs`.
//! - Probes: `client.rs`, `destination.rs`, `rate_turns.rs` (of rounds at the full rate, on a machine that is the cluster),
//!   `logs.rs` (of backends), `reused_flows.rs` (attempts that go on with a flow of before).
//! - The session: `context.rs`, and nothing but what a case has and makes. All below are functions over it.
//! - Judging: `frontends.rs` (of a Service, and which clients dial them), `frontend_kinds.rs` (a Service with each kind that
//!   a target declares), `probing.rs` (control, witness, verdict), `write_effect.rs` (what a row leans on, and what breaks
//!   another claim), `background.rs` (windows), `flows.rs` (established ones), `lasting_sockets.rs` (kept, for one destination
//!   after the other), `fragments.rs`, `udp_stickiness.rs`, `half_open.rs` (connections that are being opened while something changes), `affinity.rs`, `dialled.rs` (frontends, all judged at the same
//!   time), `vantages.rs` (clients that dial different targets), `own_targets.rs` (each client with its own),
//!   `policies.rs` (what traffic policies leave to a client), `hints.rs` (which endpoints serve a node), `slices.rs` (written by the
//!   case, and their Services),
//!   `sliced_service.rs` (a Service with one of them), `host_servers.rs` (that are no pods), `capture.rs` (packets on a device),
//!   `transfers.rs` (of many bytes, past a narrow hop), `health_checks.rs` (node ports that say whether a node has endpoints).
//! - Doing: `fence.rs` (the proof that a write has been handled), `objects_left.rs` (no more on a node than before),
//!   `programmed.rs` (what the API lists, by the target's own comparison), `agents.rs`, `commands.rs`, `foreign_rules.rs` (of
//!   another owner on a node), `api_cut.rs` (agents that reach no API server), `pod_addresses.rs` (that pass from pod to pod),
//!   `api_faults.rs` (and nodes without power), `recovery/` (what a recovery needed, for a row that is judged over many
//!   cases), `readiness.rs` (ready means served, watched through every run about outages, leftovers and restarts).
//! - The case: `target_needs.rs` and `case.rs` (a case as data, and what it needs), `quick_run.rs`, `lb_addresses.rs` (whether load balancers
//!   get some), `evidence.rs` (what is kept), `host_drops.rs` (packets that this machine had no room for), `execute.rs`.
pub mod affinity;
pub mod agents;
pub mod api_cut;
pub mod api_faults;
pub mod axes;
pub mod background;
pub mod capture;
pub mod case;
pub mod cleanup;
pub mod client;
pub mod commands;
pub mod compressed;
pub mod conditions;
pub mod context;
pub mod destination;
pub mod dialled;
mod dressing;
pub mod evidence;
pub mod execute;
pub mod fence;
pub mod flows;
pub mod foreign_rules;
pub mod fragments;
pub mod frontend_kinds;
pub mod frontends;
pub mod half_open;
pub mod health_checks;
pub mod hints;
pub mod history;
mod host_drops;
pub mod host_servers;
pub mod lasting_sockets;
pub mod lb_addresses;
pub mod limits;
pub mod logs;
pub mod manifest;
pub mod names;
pub mod objects;
pub mod objects_left;
mod own_services;
pub mod own_targets;
pub mod pod_addresses;
pub mod pods;
pub mod policies;
pub mod probing;
pub mod programmed;
pub mod quick_run;
pub mod rate_turns;
mod readiness;
mod record;
pub mod recovery;
pub mod report;
mod requests;
mod reused_flows;
pub mod sliced_service;
pub mod slices;
pub mod target_needs;
pub mod time_spent;
pub mod transfers;
pub mod udp_stickiness;
pub mod vantages;
pub mod verdict;
pub mod waiting;
pub mod watch;
pub mod write_effect;
