//! Where the control plane ends: the maps, as a trait.
//!
//! `kernel.rs` (the real ones), `memory.rs` (for tests and mutants, checked by `order.rs`), `faulty.rs` (any of
//! them, failing when told to).
//!
//! # Contract
//! - Puts and deletes are idempotent; deleting what is absent is no error.
//! - A failed operation has changed nothing.
//! - [`LbMaps::barrier`] returns when no program still runs that may have seen entries as they were before it.

#[cfg(feature = "testing")]
pub mod faulty;
pub mod kernel;
#[cfg(feature = "testing")]
pub mod memory;
#[cfg(feature = "testing")]
mod order;

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey};

/// What can go wrong with a map.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// No room.
    #[error("map {map} is full ({capacity} entries)")]
    Full {
        /// Which map.
        map: &'static str,
        /// Its size.
        capacity: u32,
    },
    /// The kernel said no.
    #[error("{operation} on map {map} failed: {source}")]
    Kernel {
        /// Which map.
        map: &'static str,
        /// get, put, delete, list.
        operation: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

/// Everything that is in the maps, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// ADDRESSES, with their flags.
    pub addresses: Vec<(Address, u32)>,
    /// FRONTENDS.
    pub frontends: Vec<(FrontendKey, Frontend)>,
    /// SERVICES: entries that are not zero.
    pub services: Vec<(ServiceId, Service)>,
    /// SLOTS.
    pub slots: Vec<(SlotKey, BackendId)>,
    /// BACKENDS.
    pub backends: Vec<(BackendId, Backend)>,
}

/// The maps of the service load balancer.
pub trait LbMaps: Send {
    /// Reads everything: what a restarted agent adopts.
    fn contents(&self) -> Result<Contents, MapError>;
    /// Inserts or replaces.
    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError>;
    /// Removes.
    fn delete_address(&mut self, address: Address) -> Result<(), MapError>;
    /// Inserts or replaces.
    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError>;
    /// Removes.
    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError>;
    /// Switches a service port to a generation: one store, seen whole.
    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError>;
    /// Zeroes the entry.
    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError>;
    /// Inserts or replaces.
    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError>;
    /// Removes.
    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError>;
    /// Inserts or replaces.
    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError>;
    /// Removes.
    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError>;
    /// Waits until every program that was running has ended (an RCU grace period).
    fn barrier(&mut self) -> Result<(), MapError>;
}
