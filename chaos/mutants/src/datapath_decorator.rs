//! A datapath with one flaw: in its attachments, in its view of earlier loads, or in its maps.

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

use doctor::{EvictionError, Found, Inventory, LooseProgram};
use lb_loader::{Attachment, Counts, DeviceKind, Hook, LoaderError};
use reference_agent::{
    datapath::Datapath,
    endpoint_address::Range,
    maps::{LbMaps, MapError},
};

use crate::udp_ending::Ending;

/// The operations that a flaw may change. The defaults are the datapath's own; so are the errors.
#[expect(
    clippy::missing_errors_doc,
    reason = "those of the methods of `Datapath` that they stand for"
)]
pub trait Flaw<D: Datapath>: Send {
    /// The maps, unchanged or with the flaw.
    type Maps: LbMaps;

    /// [`Datapath::maps`].
    fn maps(&self, inner: &D) -> Self::Maps;

    /// [`Datapath::connections`].
    fn connections(&self, inner: &D) -> Result<Ending<D::Connections>, LoaderError> {
        inner.connections().map(Ending::all)
    }

    /// [`Datapath::attach`].
    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()
    }

    /// [`Datapath::unattached`].
    fn unattached(&self, inner: &D) -> Result<Vec<Hook>, LoaderError> {
        inner.unattached()
    }

    /// [`Datapath::attach_device`].
    fn attach_device(&mut self, inner: &mut D, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        inner.attach_device(device, kind)
    }

    /// [`Datapath::leftovers`].
    fn leftovers(&self, inner: &D) -> Result<Inventory, LoaderError> {
        inner.leftovers()
    }
}

/// A datapath with a flaw.
pub struct Flawed<D, F> {
    inner: D,
    flaw: F,
}

impl<D: Datapath, F: Flaw<D>> Flawed<D, F> {
    /// Wraps the production agent's datapath.
    pub fn new(inner: D, flaw: F) -> Self {
        Self { inner, flaw }
    }
}

impl<D: fmt::Debug, F> fmt::Debug for Flawed<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flawed").field(&self.inner).finish()
    }
}

/// A flaw in recognizing leftovers: the function replaces the datapath's list of them.
pub(crate) struct Misjudges<J>(pub(crate) J);

impl<D: Datapath, J: Fn(Inventory) -> Inventory + Send> Flaw<D> for Misjudges<J> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn leftovers(&self, inner: &D) -> Result<Inventory, LoaderError> {
        inner.leftovers().map(&self.0)
    }
}

impl<D: Datapath, F: Flaw<D>> Datapath for Flawed<D, F> {
    type Maps = F::Maps;
    type Connections = Ending<D::Connections>;

    fn maps(&self) -> F::Maps {
        self.flaw.maps(&self.inner)
    }

    fn connections(&self) -> Result<Self::Connections, LoaderError> {
        self.flaw.connections(&self.inner)
    }

    fn adopted(&self) -> bool {
        self.inner.adopted()
    }

    fn first(&self) -> bool {
        self.inner.first()
    }

    fn counts(&self) -> Result<Option<Counts>, MapError> {
        self.inner.counts()
    }

    fn attach(&mut self) -> Result<(), EvictionError> {
        self.flaw.attach(&mut self.inner)
    }

    fn unattached(&self) -> Result<Vec<Hook>, LoaderError> {
        self.flaw.unattached(&self.inner)
    }

    fn addresses(&self) -> Result<(Option<Ipv4Addr>, Option<Ipv6Addr>), LoaderError> {
        self.inner.addresses()
    }

    fn set_addresses(&mut self, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Result<(), LoaderError> {
        self.inner.set_addresses(v4, v6)
    }

    fn set_service_ranges(&mut self, ranges: &[Range]) -> Result<(), LoaderError> {
        self.inner.set_service_ranges(ranges)
    }

    fn attach_device(&mut self, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        self.flaw.attach_device(&mut self.inner, device, kind)
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
        self.flaw.leftovers(&self.inner)
    }

    fn evict(&self, leftover: &Found) -> Result<(), EvictionError> {
        self.inner.evict(leftover)
    }

    fn disarm(&self, leftover: &LooseProgram) -> Result<(), EvictionError> {
        self.inner.disarm(leftover)
    }
}
