//! Faults as values that heal on drop and, where the node could be left alone with them, expire by themselves.
//!
//! ```text
//! case ── LeftoverPrograms ── stdin/stdout of `plumbline node hold-programs` on the node ── lb-loader ── kernel
//!      ├─ StoppedAgent ────── AgentControl::stop, start
//!      ├─ RedirectedAgent ────────── AgentControl::set_api_endpoint
//!      └─ Connections ─────── `plumbline node connections` on the node ── /proc, sock_diag
//! ```
//!
//! - `leftover.rs`: programs of an earlier load that stay attached, or whose pinned links lead elsewhere; `holder/`: its
//!   part on the node; `protocol.rs`: the lines between the two.
//! - `helper.rs`, `worker.rs`: what helpers on nodes have in common, seen from the fault and on the node.
//! - `redirected_agent.rs`: an agent that reaches the API by another way; `connections.rs`: its connections there, seen and reset.
//! - `agent.rs`: an agent that is down, or runs in another configuration; `pins.rs`: pins that it does not find.
//! - `foreign/`: programs of another owner.
//! - `packets/`: packet programs of an earlier load that stay attached.
//! - `maps/`: maps that are not what their names or pins say.
//! - `notes/`: what helpers do that outlasts them, and `plumbline node undo`; `heal.rs`: all that is undone on a node when
//!   whoever made its faults is dead.
//! - `remains.rs`: what an implementation has on a node; `found.rs`: what of it faults can be made of. `kernel.rs`: which boot of its kernel it is in.
mod agent;
pub mod connections;
mod error;
pub mod foreign;
mod found;
mod heal;
mod helper;
pub mod holder;
mod kernel;
mod leftover;
pub mod maps;
pub mod notes;
pub mod packets;
mod pins;
mod protocol;
mod redirected_agent;
pub mod remains;
mod worker;

pub use self::{
    agent::{OtherwiseConfigured, StoppedAgent, unhealed},
    connections::Connections,
    error::FaultError,
    foreign::{ForeignPrograms, Tally},
    found::Found,
    heal::{Healed, heal},
    kernel::boot_id,
    leftover::LeftoverPrograms,
    maps::{Refitted, Twin, TwinMaps},
    packets::{Again, LeftoverPackets},
    pins::HiddenPins,
    protocol::{As, At, Attached, HeldProgram, Reattached, Staging},
    redirected_agent::{RedirectedAgent, lead},
    remains::Remains,
};
