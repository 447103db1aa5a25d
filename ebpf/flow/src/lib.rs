//! Pure datapath decisions: what becomes of a socket operation or a packet.
//!
//! ```text
//! destination ─▶ find ─▶ Frontend ─▶ Scope::service_port ─▶ SERVICES ─▶ choose ─▶ (BackendId, Backend)
//!                 │                                                        │
//!                 └────────────────── Tables ──────────────────────────────┘  the maps in the kernel, a model in tests
//! socket::decide  all of it, for a socket operation ─▶ socket::Verdict
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `map_reads` | [`Tables`]: what decisions read |
//! | `frontend_lookup` | [`find`]: from a destination to its frontend; [`Scope`] |
//! | `backend_choice` | [`choose`], [`pick`]: from a service port to one of its backends; affinity |
//! | `slot` | [`slot`]: from a number to a slot |
//! | `maglev` | [`maglev_hash`]: the number that every node has for a connection |
//! | `socket` | verdicts on socket operations and binds |
//! | `net` | what becomes of packets |
//!
//! Runs in the kernel: no panic, no division, no floating point, no allocation; everything is inlined.
#![no_std]

mod backend_choice;
mod frontend_lookup;
mod maglev;
mod map_reads;
pub mod net;
mod slot;
pub mod socket;

#[cfg(test)]
mod model;

pub use self::{
    backend_choice::{affinity_of_address, affinity_of_netns, choose, elapsed, pick},
    frontend_lookup::{Scope, find, find_at},
    maglev::maglev_hash,
    map_reads::Tables,
    slot::slot,
};
