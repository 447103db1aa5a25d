//! The client and server that run in pods.
//!
//! ```text
//!  Plan (stdin) ─▶ client ─▶ socket ──{nonce}──▶ serve ─▶ Served (stdout)
//!                    │               ◀──Answer──
//!                    └─▶ Attempt lines: stdout, or kept for `probe attach`
//! ```
//!
//! Both write the records of [`oracle::history`], one JSON line each, and judge nothing. The server writes its
//! line *before* it answers: whoever has the answer finds the line.
//!
//! Files: `wire` and `http` (what goes over a connection), `stream` (sockets of TCP and SCTP), `clock` (times of one
//! process agree), `client/` (pacing, one attempt, established flows, kept sockets, fragments, TLS, output; a history
//! that is kept and those who ask for it), `serve/` (sockets, modes, log), `cli` (command line, shared with
//! `plumbline probe`).
mod clock;
mod http;
mod stream;
mod wire;

pub mod cli;
pub mod client;
pub mod serve;

pub use wire::{MAX_ANSWER, MAX_DATAGRAM, MAX_NONCE, MAX_REQUEST};
