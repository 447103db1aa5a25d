//! The kernel's maps, by `lb-loader`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey};
use lb_loader::{Datapath, PinnedMaps, Plain, Table};

use super::{Contents, LbMaps, Map, MapError, Partial, SOURCE};

/// A datapath that the maps and the hooks share. One control loop uses both, so that the lock is free.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Datapath>>);

impl Shared {
    /// Of an open datapath.
    pub fn new(datapath: Datapath) -> Self {
        Self(Arc::new(Mutex::new(datapath)))
    }

    /// The datapath, also after a panic: its state is in the kernel.
    pub fn lock(&self) -> MutexGuard<'_, Datapath> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maps of an open datapath.
#[derive(Debug)]
pub struct KernelMaps(Shared);

impl KernelMaps {
    /// Of an open datapath.
    pub fn new(datapath: Shared) -> Self {
        Self(datapath)
    }

    fn read(&self, map: Map, contents: &mut Contents) -> Result<(), MapError> {
        let datapath = self.0.lock();
        let maps = datapath.maps();
        match map {
            Map::Backends => contents.backends = maps.backends.entries()?,
            Map::Slots => contents.slots = maps.slots.entries()?,
            Map::Services => contents.services = maps.services.entries()?,
            Map::Kept => contents.kept = maps.kept.entries()?,
            Map::Sources => contents.sources = maps.sources.entries()?,
            Map::Addresses => contents.addresses = maps.addresses.entries()?,
            Map::Frontends => contents.frontends = maps.frontends.entries()?,
        }
        Ok(())
    }
}

impl From<lb_loader::MapError> for MapError {
    fn from(error: lb_loader::MapError) -> Self {
        let map = error.map.name();
        if error.is_full() {
            return Self::Full {
                map,
                capacity: error.map.capacity(),
            };
        }
        Self::Kernel {
            map,
            operation: error.operation.name(),
            source: error.source,
        }
    }
}

/// Reads pinned maps.
///
/// # Errors
/// A map can't be read.
pub fn pinned_contents(maps: &PinnedMaps) -> Result<Contents, MapError> {
    Ok(Contents {
        addresses: maps.addresses.entries()?,
        frontends: maps.frontends.entries()?,
        services: maps.services.entries()?,
        slots: maps.slots.entries()?,
        backends: maps.backends.entries()?,
        sources: maps.sources.entries()?,
        kept: maps.kept.entries()?,
    })
}

fn put_all<K: Plain, V: Plain>(table: &Table<K, V>, entries: &[(K, V)]) -> Result<(), Partial> {
    let (keys, values): (Vec<K>, Vec<V>) = entries.iter().copied().unzip();
    table.put_all(&keys, &values).map_err(partial)
}

fn partial((done, error): (usize, lb_loader::MapError)) -> Partial {
    Partial {
        done,
        error: error.into(),
    }
}

impl LbMaps for KernelMaps {
    fn contents(&self) -> Result<Contents, MapError> {
        let mut contents = Contents::default();
        for map in Map::ALL {
            self.read(map, &mut contents)?;
        }
        Ok(contents)
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        let mut contents = Contents::default();
        self.read(map, &mut contents)?;
        Ok(contents)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        Ok(self.0.lock().maps().addresses.put(&address, &flags)?)
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        self.0.lock().maps().addresses.delete(&address)?;
        Ok(())
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        Ok(self.0.lock().maps().frontends.put(&key, &value)?)
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        self.0.lock().maps().frontends.delete(&key)?;
        Ok(())
    }

    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        Ok(self.0.lock().maps().services.put(&id, &value)?)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        let datapath = self.0.lock();
        // SERVICES is an array: its entries can't be deleted, and zero counts as absent.
        datapath.maps().services.put(&id, &Service::default())?;
        // The next user of the number begins to count at zero.
        datapath.maps().service_traffic.clear(id);
        Ok(())
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        Ok(self.0.lock().maps().slots.put(&key, &backend)?)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        self.0.lock().maps().slots.delete(&key)?;
        Ok(())
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        Ok(self.0.lock().maps().backends.put(&id, &value)?)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        let datapath = self.0.lock();
        datapath.maps().backends.delete(&id)?;
        datapath.maps().backend_traffic.clear(id);
        Ok(())
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        Ok(self.0.lock().maps().sources.put(&key, &SOURCE)?)
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.0.lock().maps().sources.delete(&key)?;
        Ok(())
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        Ok(self.0.lock().maps().kept.put(&id, &value)?)
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.0.lock().maps().kept.delete(&id)?;
        Ok(())
    }

    fn put_backends(&mut self, entries: &[(BackendId, Backend)]) -> Result<(), Partial> {
        put_all(&self.0.lock().maps().backends, entries)
    }

    fn delete_backends(&mut self, ids: &[BackendId]) -> Result<(), Partial> {
        let datapath = self.0.lock();
        let result = datapath.maps().backends.delete_all(ids).map_err(partial);
        let done = result
            .as_ref()
            .map_or_else(|partial| partial.done, |()| ids.len());
        for &id in &ids[..done] {
            datapath.maps().backend_traffic.clear(id);
        }
        result
    }

    fn put_slots(&mut self, entries: &[(SlotKey, BackendId)]) -> Result<(), Partial> {
        put_all(&self.0.lock().maps().slots, entries)
    }

    fn delete_slots(&mut self, keys: &[SlotKey]) -> Result<(), Partial> {
        self.0.lock().maps().slots.delete_all(keys).map_err(partial)
    }

    fn put_addresses(&mut self, entries: &[(Address, u32)]) -> Result<(), Partial> {
        put_all(&self.0.lock().maps().addresses, entries)
    }

    fn delete_addresses(&mut self, addresses: &[Address]) -> Result<(), Partial> {
        let datapath = self.0.lock();
        datapath.maps().addresses.delete_all(addresses).map_err(partial)
    }

    fn delete_frontends(&mut self, keys: &[FrontendKey]) -> Result<(), Partial> {
        self.0.lock().maps().frontends.delete_all(keys).map_err(partial)
    }

    fn put_frontends(&mut self, entries: &[(FrontendKey, Frontend)]) -> Result<(), Partial> {
        put_all(&self.0.lock().maps().frontends, entries)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        Ok(self.0.lock().barrier()?)
    }
}
