//! Network devices: which programs go where, and what is attached.
//!
//! | module | holds |
//! |---|---|
//! | `attach` | puts a program at a device: by a link of TCX, or as a filter of clsact |
//! | `scan` | what is attached to the devices of a network namespace and whose it is; ends it |
//! | `unowned` | attachments that nobody pins |
//!
//! A device is of the network namespace of the thread that calls, and is named by its index: names are given anew.

pub(crate) mod attach;
pub(crate) mod scan;
mod unowned;

use std::fmt;

pub use self::unowned::{attach_filter, attach_tcx, attach_tcx_link, attach_xdp};
use crate::{
    DeviceHook, LoaderError, Ownership,
    sys::{
        filter::{self, Link},
        netlink::{Family, Netlink},
        tcx,
    },
};

/// How a device is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceId<'a> {
    /// By the name that it has now.
    Name(&'a str),
    /// By its index, which is its own for as long as it is there.
    Index(u32),
}

impl<'a> From<&'a str> for DeviceId<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl From<u32> for DeviceId<'_> {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for DeviceId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Index(index) => write!(f, "with index {index}"),
        }
    }
}

/// A network device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Device {
    /// Its index in its network namespace.
    pub index: u32,
    /// Its name when it was looked at, for people.
    pub name: String,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.index)
    }
}

/// What is behind a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceKind {
    /// The network: other nodes, clients outside.
    Node,
    /// A pod of this node.
    Pod,
    /// The node itself: the loopback device, of which only what leaves by it is seen.
    Loopback,
}

impl DeviceKind {
    /// Its hooks, in the order in which they are attached: what shows the frontend to clients first, so that none
    /// sees an answer from a backend.
    pub const fn hooks(self) -> &'static [DeviceHook] {
        match self {
            Self::Node => &[DeviceHook::NodeEgress, DeviceHook::NodeIngress],
            Self::Pod => &[DeviceHook::PodEgress, DeviceHook::PodIngress],
            Self::Loopback => &[DeviceHook::NodeEgress],
        }
    }

    /// What its devices are to the kernel: `ARPHRD_ETHER`, `ARPHRD_LOOPBACK`. Both have Ethernet's header.
    const fn hardware(self) -> u16 {
        match self {
            Self::Node | Self::Pod => 1,
            Self::Loopback => 772,
        }
    }
}

/// Which packets of a device a program sees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Those that come in by it.
    Ingress,
    /// Those that leave by it.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// In lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    pub(crate) const fn attach_type(self) -> u32 {
        match self {
            Self::Ingress => tcx::INGRESS,
            Self::Egress => tcx::EGRESS,
        }
    }

    pub(crate) const fn parent(self) -> u32 {
        match self {
            Self::Ingress => filter::INGRESS,
            Self::Egress => filter::EGRESS,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How packet programs are attached, where others attach theirs too. A program of TCX that lets a packet pass lets it
/// pass all programs after it, and all filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceMode {
    /// By a link of TCX ahead of every program that is there. Where the kernel has no TCX (before 6.6): as a filter of
    /// priority 1, ahead of those of this priority that are there.
    #[default]
    First,
    /// By a link of TCX after every program that is there; otherwise as a filter of priority 65535.
    Last,
    /// As a filter of clsact, which run after all of TCX, in the order of their priorities.
    Filter {
        /// From 1 on.
        priority: u16,
    },
}

/// In which way a program is attached to a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceManner {
    /// By a link of TCX.
    Link {
        /// The link.
        id: u32,
    },
    /// By TCX, without a link (`BPF_PROG_ATTACH`).
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

impl DeviceAttachment {
    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{} of {}", self.direction, self.device)
    }
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
    let mut devices = filter::devices(netlink).map_err(LoaderError::kernel("list network devices"))?;
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
