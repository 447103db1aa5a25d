//! Incident 2: the agent does not know what an earlier load has left at its cgroup.
//!
//! It attaches its own programs beside it and says that all is well. The old program runs first, rewrites the
//! destination from its own maps, and the new one sees an address that is no Service.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

use lb_loader::{Attachment, Counts, DeviceKind, Found, Hook, Inventory, LoaderError, LooseProgram};
use reference_agent::{datapath::Datapath, maps::MapError};

/// A datapath that sees no stale program.
#[derive(Debug)]
pub struct StaleKept<D>(pub D);

impl<D: Datapath> Datapath for StaleKept<D> {
    type Maps = D::Maps;
    type Connections = D::Connections;

    fn maps(&self) -> D::Maps {
        self.0.maps()
    }

    fn connections(&self) -> Result<D::Connections, LoaderError> {
        self.0.connections()
    }

    fn adopted(&self) -> bool {
        self.0.adopted()
    }

    fn counts(&self) -> Result<Option<Counts>, MapError> {
        self.0.counts()
    }

    fn attach(&mut self) -> Result<(), LoaderError> {
        self.0.attach()
    }

    fn unattached(&self) -> Result<Vec<Hook>, LoaderError> {
        self.0.unattached()
    }

    fn set_addresses(&mut self, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Result<(), LoaderError> {
        self.0.set_addresses(v4, v6)
    }

    fn attach_device(&mut self, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        self.0.attach_device(device, kind)
    }

    fn detach_device(&mut self, device: u32) -> Result<(), LoaderError> {
        self.0.detach_device(device)
    }

    fn devices(&self) -> Result<BTreeMap<u32, Option<DeviceKind>>, LoaderError> {
        self.0.devices()
    }

    fn foreign(&self) -> Result<Vec<Attachment>, LoaderError> {
        self.0.foreign()
    }

    fn leftovers(&self) -> Result<Inventory, LoaderError> {
        Ok(Inventory::default())
    }

    fn evict(&self, _leftover: &Found) -> Result<(), LoaderError> {
        Ok(())
    }

    fn disarm(&self, _leftover: &LooseProgram) -> Result<(), LoaderError> {
        Ok(())
    }
}
