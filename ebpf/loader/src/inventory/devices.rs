//! What is attached to the devices of the calling thread's network namespace.

use std::io;

use super::{Layer, Manner, Place};
use crate::{
    Direction, LoaderError,
    sys::{
        filter::{self, Link, Xdp},
        netlink::{Netlink, errno},
        tcx,
    },
};

/// An attachment as the kernel names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Raw {
    pub(crate) place: Place,
    pub(crate) order: u32,
    pub(crate) program_id: u32,
    pub(crate) manner: Manner,
}

/// `BPF_NETKIT_PRIMARY`: what its device sends.
pub(super) const NETKIT_PRIMARY: u32 = 54;
/// `BPF_NETKIT_PEER`: what the other end sends to it.
pub(super) const NETKIT_PEER: u32 = 55;

/// All of them, by device, then in the order in which packets come by. Links of XDP are left as [`Manner::XdpNetlink`].
pub(crate) fn attachments(netlink: &mut Netlink) -> Result<Vec<Raw>, LoaderError> {
    let devices = filter::devices(netlink).map_err(LoaderError::kernel("list network devices"))?;
    let mut found = Vec::new();
    for device in devices {
        at(netlink, &device, &mut found).map_err(LoaderError::kernel(format!(
            "ask what is attached to device {} ({})",
            device.name, device.ifindex
        )))?;
    }
    Ok(found)
}

/// What a device has; one that is gone meanwhile has nothing.
fn at(netlink: &mut Netlink, device: &Link, found: &mut Vec<Raw>) -> io::Result<()> {
    let mut push = |layer, direction, attached: Vec<(u32, Manner)>| {
        for (order, (program_id, manner)) in (0..).zip(attached) {
            found.push(Raw {
                place: Place::Device {
                    index: device.ifindex,
                    name: Some(device.name.clone()),
                    layer,
                    direction,
                },
                order,
                program_id,
                manner,
            });
        }
    };
    let xdp = device
        .xdp
        .iter()
        .map(|Xdp { mode, program_id }| (*program_id, Manner::XdpNetlink { mode: *mode }));
    push(Layer::Xdp, Direction::Ingress, xdp.collect());
    for (direction, tcx_type, netkit_type, parent) in [
        (Direction::Ingress, tcx::INGRESS, NETKIT_PEER, filter::INGRESS),
        (Direction::Egress, tcx::EGRESS, NETKIT_PRIMARY, filter::EGRESS),
    ] {
        push(Layer::Netkit, direction, multi(device.ifindex, netkit_type)?);
        push(Layer::Tcx, direction, multi(device.ifindex, tcx_type)?);
        let filters = match filter::filters(netlink, device.ifindex, parent) {
            Err(error) if errno(&error) == Some(libc::ENODEV) => Vec::new(),
            filters => filters?,
        };
        let filters = filters.into_iter().map(|filter| {
            let manner = Manner::Filter {
                priority: filter.priority,
                handle: filter.handle,
                chain: filter.chain,
            };
            (filter.program_id, manner)
        });
        push(Layer::Clsact, direction, filters.collect());
    }
    Ok(())
}

/// What is attached by `bpf_mprog`: TCX and netkit; of a device that has no such hook, nothing.
fn multi(ifindex: u32, attach_type: u32) -> io::Result<Vec<(u32, Manner)>> {
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
            .map_or(Manner::Legacy { flags: 0 }, |id| Manner::Link {
                id,
                pinned_at: Vec::new(),
                held_by: Vec::new(),
            });
        (entry.program_id, manner)
    });
    Ok(entries.collect())
}
