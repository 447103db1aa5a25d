//! What an earlier start has written stays: the agent adopts pinned maps, and only removes what it has put there
//! itself.
//!
//! At its start, such an agent adds and changes what the API has, and misses what was deleted while it was down: no
//! watch event reports that later.

use std::{collections::HashSet, hash::Hash};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey};
use reference_agent::{
    datapath::Datapath,
    maps::{Contents, LbMaps, Map, MapError},
};

use crate::datapath_decorator::{Flaw, Flawed};

/// The production agent's datapath, whose maps keep what an earlier start has left in them.
pub fn adopted_kept<D: Datapath>(inner: D) -> Flawed<D, AdoptedKept> {
    Flawed::new(inner, AdoptedKept)
}

/// The flaw.
#[derive(Debug)]
pub struct AdoptedKept;

impl<D: Datapath> Flaw<D> for AdoptedKept {
    type Maps = Keeping<D::Maps>;

    fn maps(&self, inner: &D) -> Self::Maps {
        Keeping::new(inner.maps())
    }
}

/// Maps that keep every entry that this process has not put, and report its removal as done.
#[derive(Debug)]
pub struct Keeping<M> {
    inner: M,
    addresses: HashSet<Address>,
    frontends: HashSet<FrontendKey>,
    services: HashSet<ServiceId>,
    slots: HashSet<SlotKey>,
    backends: HashSet<BackendId>,
    sources: HashSet<SourceKey>,
    kept: HashSet<ServiceId>,
}

impl<M> Keeping<M> {
    /// Wraps these maps.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            addresses: HashSet::new(),
            frontends: HashSet::new(),
            services: HashSet::new(),
            slots: HashSet::new(),
            backends: HashSet::new(),
            sources: HashSet::new(),
            kept: HashSet::new(),
        }
    }
}

/// Removes an entry that was put.
fn remove<K: Copy + Eq + Hash>(
    put: &mut HashSet<K>,
    key: K,
    remove: impl FnOnce(K) -> Result<(), MapError>,
) -> Result<(), MapError> {
    if !put.contains(&key) {
        return Ok(());
    }
    remove(key)?;
    put.remove(&key);
    Ok(())
}

impl<M: LbMaps> LbMaps for Keeping<M> {
    fn contents(&self) -> Result<Contents, MapError> {
        self.inner.contents()
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        self.inner.contents_of(map)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        self.addresses.insert(address);
        self.inner.put_address(address, flags)
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        remove(&mut self.addresses, address, |key| self.inner.delete_address(key))
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        self.frontends.insert(key);
        self.inner.put_frontend(key, value)
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        remove(&mut self.frontends, key, |key| self.inner.delete_frontend(key))
    }

    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.services.insert(id);
        self.inner.put_service(id, value)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        remove(&mut self.services, id, |id| self.inner.delete_service(id))
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        self.slots.insert(key);
        self.inner.put_slot(key, backend)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        remove(&mut self.slots, key, |key| self.inner.delete_slot(key))
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        self.backends.insert(id);
        self.inner.put_backend(id, value)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        remove(&mut self.backends, id, |id| self.inner.delete_backend(id))
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.sources.insert(key);
        self.inner.put_source(key)
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        remove(&mut self.sources, key, |key| self.inner.delete_source(key))
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.kept.insert(id);
        self.inner.put_kept(id, value)
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        remove(&mut self.kept, id, |id| self.inner.delete_kept(id))
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.inner.barrier()
    }
}
