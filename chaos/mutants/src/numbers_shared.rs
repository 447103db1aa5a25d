//! After a start that adopts maps, a new frontend gets the number of another Service.
//!
//! The bug of an agent that begins to count where an earlier start has begun, too: two Services share an entry, and the
//! clients of one are sent to the backends of the other.

use std::collections::BTreeMap;

use lb_abi::{
    Address, Backend, BackendId, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey, SourceKey,
};
use reference_agent::{
    datapath::Datapath,
    maps::{Contents, LbMaps, Map, MapError},
};

use crate::datapath_decorator::{Flaw, Flawed};

/// The production agent's datapath, whose new frontends get numbers that an earlier start has given to others.
pub fn numbers_shared<D: Datapath>(inner: D) -> Flawed<D, NumbersShared> {
    Flawed::new(inner, NumbersShared)
}

/// The flaw.
#[derive(Debug)]
pub struct NumbersShared;

impl<D: Datapath> Flaw<D> for NumbersShared {
    type Maps = Sharing<D::Maps>;

    fn maps(&self, inner: &D) -> Self::Maps {
        Sharing::new(inner.maps())
    }
}

/// Maps whose frontends lead to the Service of another frontend of their port, if the agent has found that one, and not
/// their own.
#[derive(Debug)]
pub struct Sharing<M> {
    inner: M,
    found: BTreeMap<FrontendKey, Frontend>,
}

impl<M: LbMaps> Sharing<M> {
    /// Wraps these maps.
    pub fn new(inner: M) -> Self {
        let found = inner.contents_of(Map::Frontends).unwrap_or_default();
        Self {
            inner,
            found: found.frontends.into_iter().collect(),
        }
    }

    /// The first frontend that was found with the same port, protocol and family, of a frontend that was not.
    fn shared(&self, key: &FrontendKey) -> Option<&Frontend> {
        if self.found.contains_key(key) {
            return None;
        }
        let like = |key: &FrontendKey| -> (Port, u8, bool) { (key.port, key.protocol, is_v4(key.address)) };
        let mut others = self.found.iter();
        others
            .find(|(other, _)| like(other) == like(key))
            .map(|(_, found)| found)
    }
}

fn is_v4(address: Address) -> bool {
    address.words()[..3] == Address::UNSPECIFIED_V4.words()[..3]
}

impl<M: LbMaps> LbMaps for Sharing<M> {
    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        let value = self.shared(&key).map_or(value, |other| Frontend {
            internal: other.internal,
            ..value
        });
        self.inner.put_frontend(key, value)
    }

    fn contents(&self) -> Result<Contents, MapError> {
        self.inner.contents()
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        self.inner.contents_of(map)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        self.inner.put_address(address, flags)
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        self.inner.delete_address(address)
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        self.inner.delete_frontend(key)
    }

    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.inner.put_service(id, value)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.inner.delete_service(id)
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        self.inner.put_slot(key, backend)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        self.inner.delete_slot(key)
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        self.inner.put_backend(id, value)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        self.inner.delete_backend(id)
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.inner.put_source(key)
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.inner.delete_source(key)
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.inner.put_kept(id, value)
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.inner.delete_kept(id)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.inner.barrier()
    }
}
