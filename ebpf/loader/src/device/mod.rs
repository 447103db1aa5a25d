//! Programs at network devices.
//!
//! | module | holds |
//! |---|---|
//! | `attach` | puts a program at a device: by a link of TCX, or as a filter of clsact |
//! | `device_programs` | [`DeviceProgram`]: what is attached to devices, at every layer; ends it |
//! | `scan` | whose programs are attached where our own programs go |
//! | `unpinned` | attachments without a pin |
//!
//! A device is of the network namespace of the thread that calls, and is named by its index: names are given anew.

pub(crate) mod attach;
pub(crate) mod device_programs;
pub(crate) mod scan;
mod unpinned;

pub use self::{
    device_programs::{DeviceProgram, device_programs, remove_empty_clsact},
    unpinned::{attach_filter, attach_tcx, attach_tcx_link, attach_xdp},
};
use crate::{
    Device, DeviceHook, DeviceId, DeviceKind, Direction, LoaderError, Ownership, XdpMode,
    sys::{
        clsact::{self, Link},
        netlink::{Family, Netlink},
    },
};

/// In which way a program is attached to a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceManner {
    /// By a link of TCX or netkit.
    Link {
        /// The link.
        id: u32,
    },
    /// By TCX or netkit, without a link (`BPF_PROG_ATTACH`).
    Program,
    /// As a filter.
    Filter {
        /// Filters run in the order of their priorities.
        priority: u16,
        /// Its number among those of its priority.
        handle: u32,
        /// Its chain; those that are not 0 run only when a filter says so.
        chain: u32,
    },
    /// To XDP, by a link or without one: rtnetlink does not say which.
    Xdp {
        /// Where it runs.
        mode: XdpMode,
    },
}

/// What [`Datapath::attach_device`](crate::Datapath::attach_device) has done at one hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachedDevice {
    /// The hook.
    pub hook: DeviceHook,
    /// The device.
    pub device: Device,
    /// Our program that runs there now.
    pub program_id: u32,
    /// How.
    pub manner: DeviceManner,
    /// `true`: the link or filter was there, and was switched to this program without a gap.
    pub updated: bool,
}

/// One attachment of one program to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceAttachment {
    /// The device.
    pub device: Device,
    /// Which packets it sees.
    pub direction: Direction,
    /// Which of our programs it is; `None`: not one of those that this [`Datapath`](crate::Datapath) has loaded.
    pub hook: Option<DeviceHook>,
    /// How.
    pub manner: DeviceManner,
    /// The program.
    pub program_id: u32,
    /// Whose it is.
    pub ownership: Ownership,
    /// The program's name as the kernel keeps it, for people only: at most 15 bytes, not unique.
    pub name: String,
    /// Ids of the maps it uses.
    pub map_ids: Vec<u32>,
}

/// A device, whatever it is.
pub(crate) fn find(netlink: &mut Netlink, wanted: DeviceId<'_>) -> Result<Device, LoaderError> {
    find_link(netlink, wanted).map(|link| device(&link))
}

/// A device that our programs can be attached to.
pub(crate) fn find_of(
    netlink: &mut Netlink,
    wanted: DeviceId<'_>,
    kind: DeviceKind,
) -> Result<Device, LoaderError> {
    let link = find_link(netlink, wanted)?;
    if link.hardware == kind.hardware() {
        Ok(device(&link))
    } else {
        Err(LoaderError::NotEthernet {
            device: device(&link),
            hardware: link.hardware,
        })
    }
}

fn find_link(netlink: &mut Netlink, wanted: DeviceId<'_>) -> Result<Link, LoaderError> {
    let mut devices = clsact::devices(netlink).map_err(LoaderError::kernel("list network devices"))?;
    let is_it = |device: &Link| match wanted {
        DeviceId::Name(name) => device.name == name,
        DeviceId::Index(index) => device.ifindex == index,
    };
    match devices.iter().position(is_it) {
        Some(at) => Ok(devices.swap_remove(at)),
        None => Err(LoaderError::NoDevice {
            device: wanted.to_string(),
            found: devices.into_iter().map(|device| device.name).collect(),
        }),
    }
}

fn device(link: &Link) -> Device {
    Device {
        index: link.ifindex,
        name: link.name.clone(),
    }
}

/// Opens netlink in the calling thread's network namespace.
pub(crate) fn netlink() -> Result<Netlink, LoaderError> {
    Netlink::open(Family::Route).map_err(LoaderError::kernel("open a netlink socket"))
}
