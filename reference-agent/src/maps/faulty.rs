//! Maps that fail by a script. A failed operation has changed nothing, as the contract says.

use std::{collections::VecDeque, io};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey};

use super::{Contents, LbMaps, Map, MapError};

/// Decorates maps with failures: a script says, operation by operation, which fail.
#[derive(Debug)]
pub struct FaultyMaps<M> {
    inner: M,
    script: VecDeque<bool>,
    failed: u64,
}

impl<M> FaultyMaps<M> {
    /// Nothing fails until [`script`](Self::script) says so.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            script: VecDeque::new(),
            failed: 0,
        }
    }

    /// Sets the results of the next puts, deletes and barriers: `true` fails. Later ones succeed.
    pub fn script(&mut self, failures: impl IntoIterator<Item = bool>) {
        self.script = failures.into_iter().collect();
    }

    /// How many operations have failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// The maps below.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// The maps below, to be changed without the agent.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    fn next(&mut self, map: &'static str, operation: &'static str) -> Result<(), MapError> {
        if self.script.pop_front() != Some(true) {
            return Ok(());
        }
        self.failed += 1;
        let source = io::Error::from_raw_os_error(12);
        Err(MapError::Kernel {
            map,
            operation,
            source,
        })
    }
}

impl<M: LbMaps> LbMaps for FaultyMaps<M> {
    fn contents(&self) -> Result<Contents, MapError> {
        self.inner.contents()
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        self.inner.contents_of(map)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        self.next("ADDRESSES", "put")?;
        self.inner.put_address(address, flags)
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        self.next("ADDRESSES", "delete")?;
        self.inner.delete_address(address)
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        self.next("FRONTENDS", "put")?;
        self.inner.put_frontend(key, value)
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        self.next("FRONTENDS", "delete")?;
        self.inner.delete_frontend(key)
    }

    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.next("SERVICES", "put")?;
        self.inner.put_service(id, value)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.next("SERVICES", "delete")?;
        self.inner.delete_service(id)
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        self.next("SLOTS", "put")?;
        self.inner.put_slot(key, backend)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        self.next("SLOTS", "delete")?;
        self.inner.delete_slot(key)
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        self.next("BACKENDS", "put")?;
        self.inner.put_backend(id, value)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        self.next("BACKENDS", "delete")?;
        self.inner.delete_backend(id)
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.next("SOURCES", "put")?;
        self.inner.put_source(key)
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.next("SOURCES", "delete")?;
        self.inner.delete_source(key)
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.next("KEPT", "put")?;
        self.inner.put_kept(id, value)
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.next("KEPT", "delete")?;
        self.inner.delete_kept(id)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.next("BARRIER", "update")?;
        self.inner.barrier()
    }
}
