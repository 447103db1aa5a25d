//! What is attached to the devices of the calling thread's network namespace, by anyone, and how it is detached.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use super::{DeviceManner, netlink};
use crate::{
    Device, Direction, Layer, LoaderError, XdpMode,
    link::HeldLink,
    sys::{
        clsact::{self, Filter, Link, Xdp},
        link::Target,
        netlink::{Family, Netlink, errno},
        program, tcx,
    },
};

/// A program that is attached to a device, as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceProgram {
    /// The device.
    pub device: Device,
    /// At which layer.
    pub layer: Layer,
    /// Which packets it sees.
    pub direction: Direction,
    /// How it is attached.
    pub manner: DeviceManner,
    /// The program.
    pub program_id: u32,
}

/// Everything that is attached to the devices of the calling thread's network namespace: by device, XDP, then ingress
/// and egress, each by layer; there in the order in which the programs run.
pub fn device_programs() -> Result<Vec<DeviceProgram>, LoaderError> {
    let mut netlink = netlink()?;
    let devices = clsact::devices(&mut netlink).map_err(LoaderError::kernel("list network devices"))?;
    let mut found = Vec::new();
    for Link {
        ifindex, name, xdp, ..
    } in devices
    {
        let device = Device { index: ifindex, name };
        found.extend(xdp.iter().map(|Xdp { mode, program_id }| DeviceProgram {
            device: device.clone(),
            layer: Layer::Xdp,
            direction: Direction::Ingress,
            manner: DeviceManner::Xdp { mode: *mode },
            program_id: *program_id,
        }));
        for direction in Direction::ALL {
            for layer in [Layer::Netkit, Layer::Tcx, Layer::Clsact] {
                found.extend(at(&mut netlink, &device, layer, direction)?);
            }
        }
    }
    Ok(found)
}

/// Programs attached at one layer of a device; none if the device has no such layer or is gone. XDP programs come with
/// the device's own netlink message ([`clsact::devices`]).
pub(super) fn at(
    netlink: &mut Netlink,
    device: &Device,
    layer: Layer,
    direction: Direction,
) -> Result<Vec<DeviceProgram>, LoaderError> {
    let found = match (layer, direction) {
        (Layer::Xdp, _) => Ok(Vec::new()),
        (Layer::Netkit, Direction::Ingress) => multi(device.index, tcx::NETKIT_PEER),
        (Layer::Netkit, Direction::Egress) => multi(device.index, tcx::NETKIT_PRIMARY),
        (Layer::Tcx, direction) => multi(device.index, direction.attach_type()),
        (Layer::Clsact, direction) => filters(netlink, device.index, direction),
    };
    let found = found.map_err(LoaderError::kernel(format!(
        "ask what is attached to {direction} of {device}"
    )))?;
    let program = |(program_id, manner)| DeviceProgram {
        device: device.clone(),
        layer,
        direction,
        manner,
        program_id,
    };
    Ok(found.into_iter().map(program).collect())
}

/// What is attached by `bpf_mprog`: TCX and netkit.
fn multi(ifindex: u32, attach_type: u32) -> io::Result<Vec<(u32, DeviceManner)>> {
    let entries = match tcx::query(ifindex, attach_type) {
        // ENXIO: it is no netkit device; EACCES: it is the other end of one, which is asked by the first.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENODEV | libc::ENXIO | libc::EACCES)
            ) =>
        {
            return Ok(Vec::new());
        }
        entries => entries?.unwrap_or_default(),
    };
    let entries = entries.into_iter().map(|entry| {
        let manner = entry
            .link_id
            .map_or(DeviceManner::Program, |id| DeviceManner::Link { id });
        (entry.program_id, manner)
    });
    Ok(entries.collect())
}

fn filters(
    netlink: &mut Netlink,
    ifindex: u32,
    direction: Direction,
) -> io::Result<Vec<(u32, DeviceManner)>> {
    let filters = match clsact::filters(netlink, ifindex, direction.parent()) {
        Err(error) if errno(&error) == Some(libc::ENODEV) => return Ok(Vec::new()),
        filters => filters?,
    };
    Ok(filters
        .iter()
        .map(|filter| (filter.program_id, manner(filter)))
        .collect())
}

/// How a filter is attached.
pub(super) const fn manner(filter: &Filter) -> DeviceManner {
    DeviceManner::Filter {
        priority: filter.priority,
        handle: filter.handle,
        chain: filter.chain,
    }
}

impl DeviceProgram {
    /// Detaches it, of any owner. `false`: it is detached already, or another program has its place by now.
    /// clsact stays, as another program may be about to use it.
    ///
    /// # Errors
    /// The kernel's own: EBUSY of a program of XDP that a link attaches.
    pub fn detach(&self) -> io::Result<bool> {
        self.end(&mut Netlink::open(Family::Route)?)
    }

    pub(super) fn end(&self, netlink: &mut Netlink) -> io::Result<bool> {
        match self.manner {
            DeviceManner::Link { id } => self.end_link(id),
            DeviceManner::Program => self.end_program(),
            DeviceManner::Filter { .. } => self.end_filter(netlink),
            DeviceManner::Xdp { mode } => self.end_xdp(netlink, mode),
        }
    }

    /// `None`: it is not loaded any more.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        match program::open(self.program_id) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            program => program.map(Some),
        }
    }

    fn end_program(&self) -> io::Result<bool> {
        let attach_type = match (self.layer, self.direction) {
            (Layer::Netkit, Direction::Ingress) => tcx::NETKIT_PEER,
            (Layer::Netkit, Direction::Egress) => tcx::NETKIT_PRIMARY,
            (_, direction) => direction.attach_type(),
        };
        let Some(program) = self.open()? else {
            return Ok(false);
        };
        match tcx::detach(self.device.index, program.as_fd(), attach_type) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
            detached => detached,
        }
    }

    fn end_link(&self, id: u32) -> io::Result<bool> {
        let Some(link) = HeldLink::find(id)? else {
            return Ok(false);
        };
        let described = link.describe()?;
        let here = match described.target {
            Target::Device { ifindex, attach_type } => {
                ifindex == self.device.index && Layer::of(attach_type) == Some((self.layer, self.direction))
            }
            _ => false,
        };
        if described.program_id != self.program_id || !here {
            return Ok(false);
        }
        link.detach().map(|()| true)
    }

    fn end_filter(&self, netlink: &mut Netlink) -> io::Result<bool> {
        let index = self.device.index;
        let filters = match clsact::filters(netlink, index, self.direction.parent()) {
            Err(error) if errno(&error) == Some(libc::ENODEV) => return Ok(false),
            filters => filters?,
        };
        let same = filters
            .into_iter()
            .find(|filter| filter.program_id == self.program_id && manner(filter) == self.manner);
        match same {
            Some(filter) => clsact::remove(netlink, index, &filter),
            None => Ok(false),
        }
    }

    fn end_xdp(&self, netlink: &mut Netlink, mode: XdpMode) -> io::Result<bool> {
        let devices = clsact::devices(netlink)?;
        let is_it = |xdp: &Xdp| xdp.mode == mode && xdp.program_id == self.program_id;
        let is_there = |link: &Link| link.ifindex == self.device.index && link.xdp.iter().any(is_it);
        let Some(program) = self.open()?.filter(|_| devices.iter().any(is_there)) else {
            return Ok(false);
        };
        match clsact::remove_xdp(netlink, self.device.index, mode, program.as_fd()) {
            // Another has taken its place since.
            Err(error) if errno(&error) == Some(libc::EEXIST) => Ok(false),
            removed => removed,
        }
    }
}

/// Removes clsact from a device, by its index, if it carries no filter; not there, or another discipline, is no error.
pub fn remove_empty_clsact(device: u32) -> Result<(), LoaderError> {
    clsact::remove_empty_clsact(&mut netlink()?, device).map_err(LoaderError::kernel(format!(
        "remove clsact, which carries nothing any more, from device {device}"
    )))
}
