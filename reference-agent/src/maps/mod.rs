//! The maps, as a trait: here the control plane ends.
//!
//! `kernel.rs` (the real ones), `memory.rs` (for tests and mutants, checked by `order.rs`), `faulty.rs` (either of them with
//! failures by a script).
//!
//! # Contract
//! - Puts and deletes are idempotent; deleting an absent entry is no error.
//! - A failed operation has changed nothing; of one on many entries, [`Partial`] has the number that were written.
//! - [`LbMaps::barrier`] returns when no program still runs that may have read entries as they were before it.

#[cfg(feature = "testing")]
pub mod faulty;
pub mod kernel;
#[cfg(feature = "testing")]
pub mod memory;
#[cfg(feature = "testing")]
mod order;

use lb_abi::{
    Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey, capacity,
};

/// Why an operation on a map failed.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// It is full.
    #[error("map {map} is full ({capacity} entries)")]
    Full {
        /// Which map.
        map: &'static str,
        /// Its size.
        capacity: u32,
    },
    /// The kernel refused it.
    #[error("{operation} on map {map} failed: {source}")]
    Kernel {
        /// Which map.
        map: &'static str,
        /// get, put, delete, list.
        operation: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// An operation on many entries that ended early: the first `done` were written, the next one failed, and the rest was not
/// tried.
#[derive(Debug, thiserror::Error)]
#[error("failed after {done} entries")]
pub struct Partial {
    /// How many were written.
    pub done: usize,
    /// Why the next one failed.
    #[source]
    pub error: MapError,
}

/// All entries of the maps, in the order of the keys.
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
    /// SOURCES, with their values.
    pub sources: Vec<(SourceKey, u32)>,
    /// KEPT.
    pub kept: Vec<(ServiceId, Service)>,
}

/// The value of every entry of SOURCES.
pub const SOURCE: u32 = 1;

/// A map that the agent writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Map {
    /// BACKENDS.
    Backends,
    /// SLOTS.
    Slots,
    /// SERVICES.
    Services,
    /// KEPT.
    Kept,
    /// SOURCES.
    Sources,
    /// ADDRESSES.
    Addresses,
    /// FRONTENDS.
    Frontends,
}

impl Map {
    /// All maps, in an order in which entries refer only to entries of earlier maps.
    pub const ALL: [Self; 7] = [
        Self::Backends,
        Self::Slots,
        Self::Services,
        Self::Kept,
        Self::Sources,
        Self::Addresses,
        Self::Frontends,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Backends => "BACKENDS",
            Self::Slots => "SLOTS",
            Self::Services => "SERVICES",
            Self::Kept => "KEPT",
            Self::Sources => "SOURCES",
            Self::Addresses => "ADDRESSES",
            Self::Frontends => "FRONTENDS",
        }
    }

    /// Entries that fit.
    pub const fn capacity(self) -> u32 {
        match self {
            Self::Backends => capacity::BACKENDS,
            Self::Slots => capacity::SLOTS,
            Self::Services => capacity::SERVICES,
            Self::Kept => capacity::KEPT,
            Self::Sources => capacity::SOURCES,
            Self::Addresses => capacity::ADDRESSES,
            Self::Frontends => capacity::FRONTENDS,
        }
    }
}

/// The maps of the service load balancer.
pub trait LbMaps: Send {
    /// Reads all maps.
    fn contents(&self) -> Result<Contents, MapError>;
    /// Reads one map; the others are empty in the result.
    fn contents_of(&self, map: Map) -> Result<Contents, MapError>;
    /// Inserts or replaces.
    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError>;
    /// Removes.
    fn delete_address(&mut self, address: Address) -> Result<(), MapError>;
    /// Inserts or replaces.
    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError>;
    /// Removes.
    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError>;
    /// Switches a service port to a generation: one atomic store.
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
    /// Inserts a range of clients.
    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError>;
    /// Removes.
    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError>;
    /// Inserts or replaces.
    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError>;
    /// Removes.
    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError>;

    /// Inserts or replaces many, one after the other.
    fn put_backends(&mut self, entries: &[(BackendId, Backend)]) -> Result<(), Partial> {
        one_by_one(entries, |&(id, value)| self.put_backend(id, value))
    }
    /// Removes many, one after the other.
    fn delete_backends(&mut self, ids: &[BackendId]) -> Result<(), Partial> {
        one_by_one(ids, |&id| self.delete_backend(id))
    }
    /// Inserts or replaces many, one after the other.
    fn put_slots(&mut self, entries: &[(SlotKey, BackendId)]) -> Result<(), Partial> {
        one_by_one(entries, |&(key, backend)| self.put_slot(key, backend))
    }
    /// Removes many, one after the other.
    fn delete_slots(&mut self, keys: &[SlotKey]) -> Result<(), Partial> {
        one_by_one(keys, |&key| self.delete_slot(key))
    }
    /// Inserts or replaces many, one after the other.
    fn put_addresses(&mut self, entries: &[(Address, u32)]) -> Result<(), Partial> {
        one_by_one(entries, |&(address, flags)| self.put_address(address, flags))
    }
    /// Removes many, one after the other.
    fn delete_addresses(&mut self, addresses: &[Address]) -> Result<(), Partial> {
        one_by_one(addresses, |&address| self.delete_address(address))
    }
    /// Removes many, one after the other.
    fn delete_frontends(&mut self, keys: &[FrontendKey]) -> Result<(), Partial> {
        one_by_one(keys, |&key| self.delete_frontend(key))
    }
    /// Inserts or replaces many, one after the other.
    fn put_frontends(&mut self, entries: &[(FrontendKey, Frontend)]) -> Result<(), Partial> {
        one_by_one(entries, |&(key, value)| self.put_frontend(key, value))
    }

    /// Waits until every program that was running has ended (an RCU grace period).
    fn barrier(&mut self) -> Result<(), MapError>;
}

fn one_by_one<T>(
    entries: &[T],
    mut operation: impl FnMut(&T) -> Result<(), MapError>,
) -> Result<(), Partial> {
    for (done, entry) in entries.iter().enumerate() {
        operation(entry).map_err(|error| Partial { done, error })?;
    }
    Ok(())
}
