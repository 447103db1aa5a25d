//! Faults as values that heal on drop and, where the node could be left alone with them, expire by themselves.
//!
//! ```text
//! case ── LeftoverPrograms ── stdin/stdout of `plumbline node hold-programs` on the node ── lb-loader ── kernel
//!      └─ StoppedAgent ────── Cluster::stop_agent, start_agent
//! ```
//!
//! - `leftover.rs`: programs of an earlier load that stay attached; `holder/`: its part on the node;
//!   `protocol.rs`: the lines between the two.
//! - `agent.rs`: an agent that is down; `pins.rs`: pins that it does not find.
//! - `remains.rs`: what an implementation has on a node.
mod agent;
mod error;
pub mod holder;
mod leftover;
mod pins;
mod protocol;
pub mod remains;

pub use self::{
    agent::StoppedAgent,
    error::FaultError,
    leftover::LeftoverPrograms,
    pins::HiddenPins,
    protocol::{As, At, Attached, HeldProgram, Staging},
    remains::Remains,
};
