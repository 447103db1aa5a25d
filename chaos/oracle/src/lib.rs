//! Histories and the checkers that judge them. No I/O: attempts and logs in, findings out.
//!
//! ```text
//! attempts of clients (history) ──┬─▶ Observed::judge ─────▶ findings: what was permitted, what happened,
//! logs of backends (history) ─────┘   trap_untouched, flows    the first offending attempts
//!                                     outcomes, peers      ─▶ what implementations may choose: recorded only
//! ```
//!
//! - `history.rs`: what clients and backends record.
//! - `permitted.rs`: what a claim permits. `check.rs`: probes judged by it. `outcome.rs`: what a single outcome is.
//! - `flow.rs`: established flows: resets, other backends, lost replies. `trap.rs`: traps.
//! - `peer.rs`: which peer address sockets show. `socket_binding.rs`: whether they can bind their port. `source.rs`: which
//!   source address backends see.
//! - `share.rs`: how answers are shared among backends. `stickiness.rs`: whether each unconnected socket, or client
//!   with session affinity, keeps one backend.
//! - `unchanged.rs`: whether a backend saw the addresses that the client sent.
//! - `fragments.rs`: fragmented datagrams, and the source of their fragments.
//! - `errors.rs`: which error attempts failed by. `crossings.rs`: packets on a device, and loops.
//! - `health.rs`: health check node ports.
//! - `finding.rs`: the result of a checker. `counted.rs`: its counts. `breakage.rs`: how a probe ended, what broke.
//! - `chaos/`: attempts judged while Services change and faults come and go.
//! - `observations.rs`: counts that are reported and never judged.

pub mod breakage;
pub mod chaos;
pub mod check;
pub mod counted;
pub mod crossings;
pub mod errors;
pub mod finding;
pub mod flow;
pub mod fragments;
pub mod health;
pub mod history;
pub mod observations;
mod outcome;
pub mod peer;
mod permitted;
pub mod share;
pub mod socket_binding;
pub mod source;
pub mod stickiness;
pub mod trap;
pub mod unchanged;
