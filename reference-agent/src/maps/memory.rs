//! The maps in memory, with the kernel's capacities, for tests and mutants.
//!
//! Each write is checked against what a program running at that moment could read (`maps/order.rs`).

use std::collections::BTreeMap;

use lb_abi::{
    Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey, capacity,
};

use super::{Contents, LbMaps, Map, MapError, SOURCE, order::Order};

/// How many entries each map holds; SERVICES, an array, has room for every number below its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// ADDRESSES.
    pub addresses: u32,
    /// FRONTENDS.
    pub frontends: u32,
    /// SLOTS.
    pub slots: u32,
    /// BACKENDS.
    pub backends: u32,
    /// SOURCES.
    pub sources: u32,
    /// KEPT.
    pub kept: u32,
}

impl Default for Capacities {
    fn default() -> Self {
        Self {
            addresses: capacity::ADDRESSES,
            frontends: capacity::FRONTENDS,
            slots: capacity::SLOTS,
            backends: capacity::BACKENDS,
            sources: capacity::SOURCES,
            kept: capacity::KEPT,
        }
    }
}

/// The entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    pub(super) addresses: BTreeMap<Address, u32>,
    pub(super) frontends: BTreeMap<FrontendKey, Frontend>,
    pub(super) services: BTreeMap<ServiceId, Service>,
    pub(super) slots: BTreeMap<SlotKey, BackendId>,
    pub(super) backends: BTreeMap<BackendId, Backend>,
    pub(super) sources: BTreeMap<SourceKey, u32>,
    pub(super) kept: BTreeMap<ServiceId, Service>,
}

/// The maps in memory.
#[derive(Debug, Default)]
pub struct MemoryMaps {
    entries: Entries,
    capacities: Capacities,
    order: Order,
    writes: u64,
    most_slots: usize,
}

impl MemoryMaps {
    /// Empty maps of the kernel's size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps with contents: what an earlier agent has left.
    pub fn with_contents(contents: &Contents) -> Self {
        let entries = Entries {
            addresses: contents.addresses.iter().copied().collect(),
            frontends: contents.frontends.iter().copied().collect(),
            services: contents.services.iter().copied().collect(),
            slots: contents.slots.iter().copied().collect(),
            backends: contents.backends.iter().copied().collect(),
            sources: contents.sources.iter().copied().collect(),
            kept: contents.kept.iter().copied().collect(),
        };
        let order = Order::begin(&entries);
        Self {
            entries,
            order,
            ..Self::default()
        }
    }

    /// Sets how many entries fit; what is there already stays.
    pub fn set_capacities(&mut self, capacities: Capacities) {
        self.capacities = capacities;
    }

    /// How many puts and deletes there were.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// The most slots that were there at one time.
    pub fn most_slots(&self) -> usize {
        self.most_slots
    }

    /// What broke the law of order so far, one sentence each.
    pub fn violations(&self) -> &[String] {
        self.order.violations()
    }

    fn read(&self, map: Map, contents: &mut Contents) {
        match map {
            Map::Backends => contents.backends = sorted(&self.entries.backends),
            Map::Slots => contents.slots = sorted(&self.entries.slots),
            Map::Services => contents.services = sorted(&self.entries.services),
            Map::Kept => contents.kept = sorted(&self.entries.kept),
            Map::Sources => contents.sources = sorted(&self.entries.sources),
            Map::Addresses => contents.addresses = sorted(&self.entries.addresses),
            Map::Frontends => contents.frontends = sorted(&self.entries.frontends),
        }
    }

    fn written(&mut self) {
        self.writes += 1;
        self.most_slots = self.most_slots.max(self.entries.slots.len());
    }
}

fn sorted<K: Copy, V: Copy>(entries: &BTreeMap<K, V>) -> Vec<(K, V)> {
    entries.iter().map(|(key, value)| (*key, *value)).collect()
}

fn room<K: Ord, V>(
    entries: &BTreeMap<K, V>,
    key: &K,
    map: &'static str,
    capacity: u32,
) -> Result<(), MapError> {
    let full = entries.len() >= capacity as usize && !entries.contains_key(key);
    if full {
        Err(MapError::Full { map, capacity })
    } else {
        Ok(())
    }
}

impl LbMaps for MemoryMaps {
    fn contents(&self) -> Result<Contents, MapError> {
        let mut contents = Contents::default();
        for map in Map::ALL {
            self.read(map, &mut contents);
        }
        Ok(contents)
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        let mut contents = Contents::default();
        self.read(map, &mut contents);
        Ok(contents)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        room(
            &self.entries.addresses,
            &address,
            "ADDRESSES",
            self.capacities.addresses,
        )?;
        self.order.put_address(&self.entries, address);
        self.entries.addresses.insert(address, flags);
        self.written();
        Ok(())
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        self.order.delete_address(&self.entries, address);
        self.entries.addresses.remove(&address);
        self.written();
        Ok(())
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        room(
            &self.entries.frontends,
            &key,
            "FRONTENDS",
            self.capacities.frontends,
        )?;
        self.order.put_frontend(&self.entries, key, value);
        self.entries.frontends.insert(key, value);
        self.written();
        Ok(())
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        self.order.delete_frontend(&self.entries, key);
        self.entries.frontends.remove(&key);
        self.written();
        Ok(())
    }

    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        if id >= capacity::SERVICES {
            return Err(MapError::Full {
                map: "SERVICES",
                capacity: capacity::SERVICES,
            });
        }
        self.order.put_service(&self.entries, id, value);
        self.entries.services.insert(id, value);
        self.written();
        Ok(())
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.order.delete_service(&self.entries, id);
        self.entries.services.remove(&id);
        self.written();
        Ok(())
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        room(&self.entries.slots, &key, "SLOTS", self.capacities.slots)?;
        self.order.put_slot(&self.entries, key, backend);
        self.entries.slots.insert(key, backend);
        self.written();
        Ok(())
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        self.order.delete_slot(&self.entries, key);
        self.entries.slots.remove(&key);
        self.written();
        Ok(())
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        room(&self.entries.backends, &id, "BACKENDS", self.capacities.backends)?;
        self.order.put_backend(&self.entries, id, value);
        self.entries.backends.insert(id, value);
        self.written();
        Ok(())
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        self.order.delete_backend(&self.entries, id);
        self.entries.backends.remove(&id);
        self.written();
        Ok(())
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        room(&self.entries.sources, &key, "SOURCES", self.capacities.sources)?;
        self.order.put_source(key);
        self.entries.sources.insert(key, SOURCE);
        self.written();
        Ok(())
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.entries.sources.remove(&key);
        self.written();
        Ok(())
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        room(&self.entries.kept, &id, "KEPT", self.capacities.kept)?;
        self.order.put_kept(&self.entries, id, value);
        self.entries.kept.insert(id, value);
        self.written();
        Ok(())
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.order.delete_kept(&self.entries, id);
        self.entries.kept.remove(&id);
        self.written();
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.order = Order::after_barrier(&self.entries, std::mem::take(&mut self.order));
        Ok(())
    }
}
