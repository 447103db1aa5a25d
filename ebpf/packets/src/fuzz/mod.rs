//! Differential fuzzing: random packets and maps through the kernel's program and through the [`model`](crate::model).
//!
//! ```text
//! seed ─▶ Case (proptest) ─▶ Kernel: maps, packet ─▶ Detached::run ─▶ what it did ─┐
//!                    │                                                             ├─▶ the same? ─▶ next packet
//!                    └─────▶ model::expected ─▶ what is permitted ─────────────────┘      └ no ─▶ shrink ─▶ Row
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `run` | [`Fuzzer`]: cases by seed and number, until one differs |
//! | `case` | [`Case`]: maps and a short sequence of packets |
//! | `pool` | the addresses and ports that everything is drawn from, and the ways there |
//! | `draw` | what scenarios are drawn as |
//! | `scenario` | random services |
//! | `program_state` | what the programs themselves may have written, torn too |
//! | `step` | random packets: at services and flows, answers to what came out before, ICMP errors about it, noise |
//! | `frame` | a packet's bytes from its description |
//! | `kernel` | [`Kernel`]: maps and programs; writes what differs, reads what was written |
//! | `sockets` | [`Sockets`] of the node's own, whose ports are not allocated |
//! | `compare` | what differs between what is permitted and what was done |
//! | `shrink` | the least maps and packet that still differ |
//! | `row` | a difference, printed as a row of a packet table |
//!
//! A case is drawn from the run's seed and its number alone, so that `--seed S --first N --cases 1` is that case.

mod case;
mod compare;
mod draw;
mod frame;
mod kernel;
mod pool;
mod program_state;
mod row;
mod run;
mod scenario;
mod shrink;
mod sockets;
mod step;
#[cfg(test)]
mod tests;

pub use self::{
    case::Case,
    compare::Difference,
    kernel::{Kernel, KernelError, Observation, Shot},
    pool::routes,
    row::Row,
    run::{Fuzzer, Limits, Model, Report},
    sockets::Sockets,
};
pub(crate) use self::{
    compare::{entries, same},
    kernel::{write, write_all},
    run::drawn,
};
