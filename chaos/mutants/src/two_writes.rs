//! A service is emptied before its next set of backends is written.
//!
//! The bug of an agent that removes what was and then writes what is. A client that comes in between is refused.

use std::{thread, time::Duration};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey};
use reference_agent::{
    datapath::Datapath,
    maps::{Contents, LbMaps, Map, MapError},
};

use crate::datapath_decorator::{Flaw, Flawed};

/// What lies between the two writes.
const BETWEEN: Duration = Duration::from_millis(30);

/// The production agent's datapath, with two writes of a service for one.
pub fn two_writes<D: Datapath>(inner: D) -> Flawed<D, TwoWrites> {
    Flawed::new(inner, TwoWrites)
}

/// The flaw.
#[derive(Debug)]
pub struct TwoWrites;

impl<D: Datapath> Flaw<D> for TwoWrites {
    type Maps = Twice<D::Maps>;

    fn maps(&self, inner: &D) -> Self::Maps {
        Twice(inner.maps())
    }
}

/// Maps whose services are emptied before they are put.
#[derive(Debug)]
pub struct Twice<M>(M);

impl<M> Twice<M> {
    /// Wraps these maps.
    pub fn new(inner: M) -> Self {
        Self(inner)
    }
}

impl<M: LbMaps> LbMaps for Twice<M> {
    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        if value.slots > 0 {
            self.0.put_service(id, Service { slots: 0, ..value })?;
            thread::sleep(BETWEEN);
        }
        self.0.put_service(id, value)
    }

    fn contents(&self) -> Result<Contents, MapError> {
        self.0.contents()
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        self.0.contents_of(map)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        self.0.put_address(address, flags)
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        self.0.delete_address(address)
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        self.0.put_frontend(key, value)
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        self.0.delete_frontend(key)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.0.delete_service(id)
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        self.0.put_slot(key, backend)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        self.0.delete_slot(key)
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        self.0.put_backend(id, value)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        self.0.delete_backend(id)
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.0.put_source(key)
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.0.delete_source(key)
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.0.put_kept(id, value)
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.0.delete_kept(id)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.0.barrier()
    }
}
