//! The maps of a [`Node`].

use std::net::{Ipv4Addr, Ipv6Addr};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey};

use super::node::Node;
use crate::{
    endpoint_address::Range,
    maps::{Contents, LbMaps, Map, MapError},
};

/// The maps of a [`Node`].
#[derive(Debug)]
pub struct NodeMaps(pub(super) Node);

impl LbMaps for NodeMaps {
    fn contents(&self) -> Result<Contents, MapError> {
        self.0.lock().maps.contents()
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        self.0.lock().maps.contents_of(map)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        self.0.lock().maps.put_address(address, flags)
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        self.0.lock().maps.delete_address(address)
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        self.0.lock().maps.put_frontend(key, value)
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        self.0.lock().maps.delete_frontend(key)
    }

    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.0.lock().maps.put_service(id, value)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.0.lock().maps.delete_service(id)
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        self.0.lock().maps.put_slot(key, backend)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        self.0.lock().maps.delete_slot(key)
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        self.0.lock().maps.put_backend(id, value)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        self.0.lock().maps.delete_backend(id)
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.0.lock().maps.put_source(key)
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        self.0.lock().maps.delete_source(key)
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.0.lock().maps.put_kept(id, value)
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        self.0.lock().maps.delete_kept(id)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.0.lock().maps.barrier()
    }
}

impl Node {
    /// Source addresses of packets to remote backends.
    pub fn addresses(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        self.lock().addresses
    }

    /// The configured ranges of cluster IPs.
    pub fn service_ranges(&self) -> Vec<Range> {
        self.lock().service_ranges.clone()
    }

    /// From now on configuring the ranges of cluster IPs fails, or doesn't.
    pub fn refuse_ranges(&self, refuse: bool) {
        self.lock().refuse_ranges = refuse;
    }
}
