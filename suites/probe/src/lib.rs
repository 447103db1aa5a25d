//! The client and server that run in pods, on nodes and outside the cluster.
//!
//! ```text
//!  Plan (stdin) ─▶ client ─▶ socket ──{nonce}──▶ serve ─▶ Served (stdout)
//!                    │               ◀──Answer──
//!                    └─▶ Attempt lines: stdout, or kept for `probe attach`
//! ```
//!
//! Both write the records of [`oracle::history`], one JSON line each, and judge nothing. The server writes its line
//! *before* it answers: for every answer that a client has, the line exists.
//!
//! - `cli`: the command line, shared with `plumbline probe`.
//! - `wire`, `http`: what goes over a connection. `stream`: sockets of TCP and SCTP. `transfer`: many bytes over one.
//!   `clock`: times of one process. `socket_options`: those without a wrapper.
//! - `client/`: `pace` (when attempts start), `attempt`, `flow` (established flows), `persistent_sockets` (sockets that stay
//!   open), `fragments` and `fragment_capture` (fragments sent and seen), `transfer`, `tls`, `socket`; `output` and `history_buffer` (where attempts are
//!   written), `control` (readers of a kept history).
//! - `packets/`: `ring` (packets on all devices), `capture` (on one), `echo` (packets that no socket of TCP or UDP sends).
//! - `load/`: exchanges by the thousand for benchmarks, and the server of them; they leave no history.
//! - `serve/`: `tcp` and `udp` (one port each), `mode` (behaviours), `log`.
mod clock;
mod http;
mod socket_options;
mod stream;
mod transfer;
mod wire;

pub mod cli;
pub mod client;
pub mod load;
pub mod packets;
pub mod serve;

pub use wire::{MAX_ANSWER, MAX_DATAGRAM, MAX_NONCE, MAX_REQUEST, MAX_TRANSFER};
