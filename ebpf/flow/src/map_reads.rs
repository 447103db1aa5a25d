//! What decisions read.

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey,
};

/// The maps that lead from a destination to a backend.
///
/// Every method gives a copy: what was read once is not read again by a decision, so that a write in between makes
/// no difference.
pub trait Tables {
    /// Looks up ADDRESSES: [`lb_abi::address_flags`].
    fn address(&self, address: &Address) -> Option<u32>;
    /// Looks up FRONTENDS.
    fn frontend(&self, key: &FrontendKey) -> Option<Frontend>;
    /// Looks up SERVICES: generation and number of slots as one value, of one write.
    fn service(&self, id: ServiceId) -> Option<Service>;
    /// Looks up SLOTS.
    fn slot(&self, key: &SlotKey) -> Option<BackendId>;
    /// Looks up BACKENDS.
    fn backend(&self, id: BackendId) -> Option<Backend>;
    /// Looks up AFFINITY.
    fn affinity(&self, key: &AffinityKey) -> Option<Affinity>;
    /// Writes AFFINITY. That it fails costs the client its affinity, and nothing else.
    fn keep_affinity(&self, key: &AffinityKey, value: &Affinity);
    /// A number, uniformly at random.
    fn random(&self) -> u32;
    /// Seconds since the machine started (CLOCK_MONOTONIC).
    fn now(&self) -> u32;
}
