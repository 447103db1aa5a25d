//! Pure datapath decisions: what becomes of a socket operation, and which slot is chosen.
//!
//! ```text
//! destination ─▶ decide ─▶ Verdict ─┬─▶ Pass                  no frontend: left alone
//!                  │                ├─▶ Translate(Backend)    sent there
//!                  ▼                └─▶ Refuse(Refusal)       ECONNREFUSED
//!                Tables: the maps in the kernel, a model in tests
//! ```
//!
//! Runs in the kernel: no panic, no division, no floating point, no allocation; everything is inlined.
#![no_std]

mod decide;
mod slot;

pub use self::{
    decide::{Refusal, Tables, Verdict, decide},
    slot::slot,
};
