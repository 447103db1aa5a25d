//! Attachments without a pin: without a link they stay until they are removed or the device is, whatever process ends;
//! by a link, for as long as a descriptor of it is open. Earlier and other implementations leave such, and tests and fault
//! injection make them.

use std::os::fd::{AsFd as _, OwnedFd};

use super::{find, netlink};
use crate::{
    DeviceId, Direction, HeldProgram, LoaderError, XdpMode,
    sys::{
        clsact::{self, Carrier, Place},
        tcx,
    },
};

/// Makes a program of any owner a filter of clsact that decides itself, ahead of those of the same priority; at ingress
/// also of `ingress`, where that is there.
pub fn attach_filter<'a>(
    device: impl Into<DeviceId<'a>>,
    direction: Direction,
    priority: u16,
    program: &HeldProgram,
) -> Result<(), LoaderError> {
    let mut netlink = netlink()?;
    let device = find(&mut netlink, device.into())?;
    let place = Place::New {
        parent: direction.parent(),
        priority,
    };
    let failed = || {
        LoaderError::kernel(format!(
            "attach program {} as a filter to {direction} of {device}",
            program.id()
        ))
    };
    let carrier = clsact::add_clsact(&mut netlink, device.index).map_err(failed())?;
    if (carrier, direction) == (Carrier::Ingress, Direction::Egress) {
        return Err(LoaderError::NoEgress { device });
    }
    clsact::put(&mut netlink, device.index, place, program.as_fd(), program.name()).map_err(failed())
}

/// Attaches a program of any owner by TCX without a link, after those that are there.
pub fn attach_tcx<'a>(
    device: impl Into<DeviceId<'a>>,
    direction: Direction,
    program: &HeldProgram,
) -> Result<(), LoaderError> {
    let device = find(&mut netlink()?, device.into())?;
    tcx::attach(device.index, program.as_fd(), direction.attach_type()).map_err(LoaderError::kernel(format!(
        "attach program {} to {direction} of {device}",
        program.id()
    )))
}

/// Attaches a program of any owner by a link of TCX without a pin, after those that are there: it stays for as long as
/// the descriptor, or another one of the link, is open, and until the link is detached.
pub fn attach_tcx_link<'a>(
    device: impl Into<DeviceId<'a>>,
    direction: Direction,
    program: &HeldProgram,
) -> Result<OwnedFd, LoaderError> {
    let device = find(&mut netlink()?, device.into())?;
    tcx::create(device.index, program.as_fd(), direction.attach_type(), false).map_err(LoaderError::kernel(
        format!(
            "attach program {} to {direction} of {device} by a link",
            program.id()
        ),
    ))
}

/// Attaches a program of any owner to XDP without a link, where none is in this mode.
pub fn attach_xdp<'a>(
    device: impl Into<DeviceId<'a>>,
    mode: XdpMode,
    program: &HeldProgram,
) -> Result<(), LoaderError> {
    let mut netlink = netlink()?;
    let device = find(&mut netlink, device.into())?;
    clsact::put_xdp(&mut netlink, device.index, mode, program.as_fd())
        .map(drop)
        .map_err(LoaderError::kernel(format!(
            "attach program {} to xdp of {device}",
            program.id()
        )))
}
