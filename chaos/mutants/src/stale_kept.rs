//! Incident 2: the agent does not know what an earlier load has left at its cgroup.
//!
//! It attaches its own programs beside it and says that all is well. The old program runs first, rewrites the
//! destination from its own maps, and the new one sees an address that is no Service.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
    path::Path,
};

use lb_loader::{
    Attachment, CgroupState, Counts, DeviceKind, Found, Hook, Inventory, LoaderError, LooseProgram, Manner,
    Place,
};
use reference_agent::{datapath::Datapath, maps::MapError};

/// Where every node's own cgroup is in its mount namespace, and an agent attaches.
const CGROUP: &str = "/sys/fs/cgroup";

/// What the agent overlooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlooked {
    /// Everything, wherever it is.
    All,
    /// Programs at its own cgroup that were attached without a link.
    Legacy,
    /// Programs at its own cgroup that a link attaches.
    Links,
    /// Programs at cgroups below its own.
    Below,
    /// Programs at cgroups that its mount does not show.
    Above,
    /// Programs at the sendmsg hooks.
    Sendmsg,
}

impl Overlooked {
    fn hides(self, found: &Found) -> bool {
        let Place::Cgroup {
            path,
            state,
            attach_name,
            ..
        } = &found.place
        else {
            return self == Self::All;
        };
        let own = path.as_deref() == Some(Path::new(CGROUP));
        match self {
            Self::All => true,
            Self::Legacy => own && matches!(found.manner, Manner::Legacy { .. }),
            Self::Links => own && matches!(found.manner, Manner::Link { .. }),
            Self::Below => !own && *state == CgroupState::Visible,
            Self::Above => *state == CgroupState::Hidden,
            Self::Sendmsg => attach_name.contains("sendmsg"),
        }
    }
}

/// A datapath that does not see some stale programs.
#[derive(Debug)]
pub struct StaleKept<D> {
    inner: D,
    overlooked: Overlooked,
}

impl<D> StaleKept<D> {
    /// Around the production agent's.
    pub fn new(inner: D, overlooked: Overlooked) -> Self {
        Self { inner, overlooked }
    }
}

impl<D: Datapath> Datapath for StaleKept<D> {
    type Maps = D::Maps;
    type Connections = D::Connections;

    fn maps(&self) -> D::Maps {
        self.inner.maps()
    }

    fn connections(&self) -> Result<D::Connections, LoaderError> {
        self.inner.connections()
    }

    fn adopted(&self) -> bool {
        self.inner.adopted()
    }

    fn counts(&self) -> Result<Option<Counts>, MapError> {
        self.inner.counts()
    }

    fn attach(&mut self) -> Result<(), LoaderError> {
        self.inner.attach()
    }

    fn unattached(&self) -> Result<Vec<Hook>, LoaderError> {
        self.inner.unattached()
    }

    fn set_addresses(&mut self, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Result<(), LoaderError> {
        self.inner.set_addresses(v4, v6)
    }

    fn attach_device(&mut self, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        self.inner.attach_device(device, kind)
    }

    fn detach_device(&mut self, device: u32) -> Result<(), LoaderError> {
        self.inner.detach_device(device)
    }

    fn devices(&self) -> Result<BTreeMap<u32, Option<DeviceKind>>, LoaderError> {
        self.inner.devices()
    }

    fn foreign(&self) -> Result<Vec<Attachment>, LoaderError> {
        self.inner.foreign()
    }

    fn leftovers(&self) -> Result<Inventory, LoaderError> {
        if self.overlooked == Overlooked::All {
            return Ok(Inventory::default());
        }
        let mut seen = self.inner.leftovers()?;
        seen.attachments.retain(|found| !self.overlooked.hides(found));
        Ok(seen)
    }

    fn evict(&self, leftover: &Found) -> Result<(), LoaderError> {
        self.inner.evict(leftover)
    }

    fn disarm(&self, leftover: &LooseProgram) -> Result<(), LoaderError> {
        self.inner.disarm(leftover)
    }
}
