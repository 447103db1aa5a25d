//! Faults as values that heal when dropped and, where the node can undo them itself, expire.
//!
//! ```text
//! case ─▶ StoppedAgent, RedirectedAgent, HiddenPins ─▶ FaultInjector ─▶ Cluster::agents ─▶ AgentControl::{stop, start, …}
//!    └──▶ LeftoverPrograms, LeftoverPackets, ForeignPrograms, TwinMaps ─▶ Helper ─▶ stdin and stdout of
//!                              `plumbline node …` on the node ─▶ worker ─▶ holder, tally, twin ─▶ lb_loader ─▶ kernel
//! ```
//!
//! - `injector.rs`: the cluster that faults are made in, and what could not be healed.
//! - `agent.rs`: an agent that is stopped or runs in another configuration; `redirected_agent.rs`: one that uses another
//!   endpoint of the API; `pins.rs`: pins that it does not find.
//! - `leftover.rs`: socket programs of an earlier load that stay attached; `protocol.rs` and `holder/`: its helper.
//! - `packets/`: the same for packet programs; `foreign/`: programs of another owner; `maps/`: maps that are not what
//!   their names or pins say.
//! - `wipe.rs`: what an implementation has on a node, removed by a third party.
//! - `helper.rs`, `worker.rs`: the two ends of every helper; `journal/`: what helpers do that outlasts their process.
//! - `heal.rs`: undoes on a node what faults of dead processes have left.
//! - `connections.rs`, `object_counts.rs`, `precheck.rs`, `kernel.rs`: what is read from a node; `commands.rs`: commands there.
//! - `error.rs`: why a fault was not made, or not healed.
mod agent;
mod commands;
pub mod connections;
mod error;
pub mod foreign;
mod heal;
mod helper;
pub mod holder;
mod injector;
pub mod journal;
mod kernel;
mod leftover;
pub mod maps;
pub mod object_counts;
pub mod packets;
mod pins;
mod precheck;
mod protocol;
mod redirected_agent;
pub mod wipe;
mod worker;

pub use self::{
    agent::{ReconfiguredAgent, StoppedAgent},
    connections::Connections,
    error::FaultError,
    foreign::{ForeignPrograms, Tally},
    heal::{Healed, heal, look},
    injector::FaultInjector,
    kernel::boot_id,
    leftover::LeftoverPrograms,
    maps::{Refitted, Twin, TwinMaps},
    object_counts::Remains,
    packets::{Again, LeftoverPackets},
    pins::HiddenPins,
    precheck::Found,
    protocol::{As, At, Attached, HeldProgram, Reattached, Staging},
    redirected_agent::{RedirectedAgent, redirect_agent},
    wipe::{Removed, Wiped},
};
