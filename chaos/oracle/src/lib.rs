//! Histories and the checkers that judge them. No I/O: attempts and logs in, findings out.
//!
//! ```text
//! attempts of clients (history) ──┬─▶ Observed::judge ─────▶ findings: what was permitted, what happened,
//! logs of backends (history) ─────┘   trap_untouched, flows    the first offending attempts
//!                                     outcomes, peers      ─▶ what implementations may choose: recorded only
//! ```
//!
//! - `history.rs`: what the probe writes.
//! - `check.rs`, `permitted.rs`, `outcome.rs`: the checkers; the words are those of the catalogue of claims (serves, REFUSE, SILENT, NONE, trap).
//! - `flow.rs`: established flows: ends, other backends, lost replies. `trap.rs`: traps.
//! - `peer.rs`: whom sockets show as the one they talk to. `bound.rs`: whether they get the port they ask for.
//! - `share.rs`: how answers are shared among backends. `stick.rs`: whether unconnected sockets have one backend each.
//! - `fragments.rs`: datagrams in fragments, and where these come from.
//! - `finding.rs`: what a checker says. `broke.rs`: what broke, in words.
//! - `record.rs`: counts that are reported and never judged.
pub mod bound;
pub mod broke;
pub mod check;
pub mod finding;
pub mod flow;
pub mod fragments;
pub mod history;
mod outcome;
pub mod peer;
mod permitted;
pub mod record;
pub mod share;
pub mod stick;
pub mod trap;
