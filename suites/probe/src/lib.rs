//! The client and server that run in pods.
//!
//! ```text
//!  Plan (stdin) ─▶ client ─▶ tcp | udp ──{nonce}──▶ serve ─▶ Served (stdout)
//!                    │                ◀──Answer───
//!                    └─▶ Attempt lines (stdout)
//! ```
//!
//! Both write the records of [`oracle::history`], one JSON line each, and judge nothing. The server writes its
//! line *before* it answers: whoever has the answer finds the line.
//!
//! Files: `wire` (what goes over a connection), `clock` (times of one process agree), `client/` (pacing, one
//! attempt, output), `serve/` (sockets, modes, log), `cli` (command line, shared with `plumbline probe`).
mod clock;
mod wire;

pub mod cli;
pub mod client;
pub mod serve;

pub use wire::{MAX_ANSWER, MAX_NONCE, MAX_REQUEST};
