//! What is attached to the devices of a network namespace, and whose it is.

use std::{collections::HashMap, io, os::fd::AsFd as _};

use super::{Device, DeviceAttachment, DeviceManner, Direction, attach::manner};
use crate::{
    HeldProgram, LoaderError, Ownership,
    object::Programs,
    sys::{
        filter::{self, Link},
        link::{self, Target},
        netlink::{Netlink, errno},
        tcx,
    },
};

/// Whose programs are, each looked at once.
pub(crate) struct Owners<'a> {
    current: &'a [u32],
    known: HashMap<u32, Option<Owned>>,
}

#[derive(Clone)]
struct Owned {
    ownership: Ownership,
    name: String,
    map_ids: Vec<u32>,
}

impl<'a> Owners<'a> {
    /// `current`: ids of the programs that are [`Ownership::Current`].
    pub(crate) fn new(current: &'a [u32]) -> Self {
        Self {
            current,
            known: HashMap::new(),
        }
    }

    /// Whether a program is ours, of any load; one that is gone is not.
    pub(crate) fn is_ours(&mut self, program_id: u32) -> Result<bool, LoaderError> {
        let owned = self.of(program_id)?;
        Ok(owned.is_some_and(|owned| owned.ownership != Ownership::Foreign))
    }

    /// `None`: the program is gone.
    fn of(&mut self, program_id: u32) -> Result<Option<Owned>, LoaderError> {
        if let Some(known) = self.known.get(&program_id) {
            return Ok(known.clone());
        }
        let owned = match HeldProgram::find(program_id)? {
            None => None,
            Some(program) => Some(Owned {
                ownership: match (self.current.contains(&program_id), program.is_ours()?) {
                    (true, _) => Ownership::Current,
                    (false, true) => Ownership::Earlier,
                    (false, false) => Ownership::Foreign,
                },
                name: program.name().to_owned(),
                map_ids: program.map_ids().to_vec(),
            }),
        };
        self.known.insert(program_id, owned.clone());
        Ok(owned)
    }
}

/// What is attached to every device; `programs`: those that are [`Ownership::Current`].
pub(crate) fn attachments(
    netlink: &mut Netlink,
    programs: Option<&Programs>,
) -> Result<Vec<DeviceAttachment>, LoaderError> {
    let devices = filter::devices(netlink).map_err(LoaderError::kernel("list network devices"))?;
    let devices = devices
        .into_iter()
        .map(|Link { ifindex, name, .. }| Device { index: ifindex, name });
    at(netlink, devices, programs)
}

/// What is attached to these devices.
pub(crate) fn at(
    netlink: &mut Netlink,
    devices: impl IntoIterator<Item = Device>,
    programs: Option<&Programs>,
) -> Result<Vec<DeviceAttachment>, LoaderError> {
    let current = programs.map_or_else(Vec::new, Programs::ids);
    let mut owners = Owners::new(&current);
    let mut found = Vec::new();
    for device in devices {
        for direction in Direction::ALL {
            for (program_id, manner) in raw(netlink, &device, direction)? {
                // It may have been detached since, by its owner.
                let Some(Owned {
                    ownership,
                    name,
                    map_ids,
                }) = owners.of(program_id)?
                else {
                    continue;
                };
                found.push(DeviceAttachment {
                    device: device.clone(),
                    direction,
                    hook: programs.and_then(|programs| programs.device_hook(program_id)),
                    manner,
                    program_id,
                    ownership,
                    name,
                    map_ids,
                });
            }
        }
    }
    Ok(found)
}

/// Programs in the order in which they run: TCX, then filters. Of a device that is gone meanwhile, none.
fn raw(
    netlink: &mut Netlink,
    device: &Device,
    direction: Direction,
) -> Result<Vec<(u32, DeviceManner)>, LoaderError> {
    let failed = || LoaderError::kernel(format!("ask what is attached to {direction} of {device}"));
    let tcx = match tcx::query(device.index, direction.attach_type()) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(Vec::new()),
        tcx => tcx.map_err(failed())?.unwrap_or_default(),
    };
    let filters = match filter::filters(netlink, device.index, direction.parent()) {
        Err(error) if errno(&error) == Some(libc::ENODEV) => Vec::new(),
        filters => filters.map_err(failed())?,
    };
    let tcx = tcx.into_iter().map(|entry| {
        let manner = entry
            .link_id
            .map_or(DeviceManner::Program, |id| DeviceManner::Link { id });
        (entry.program_id, manner)
    });
    let filters = filters.iter().map(|filter| (filter.program_id, manner(filter)));
    Ok(tcx.chain(filters).collect())
}

/// Ends an attachment. `false`: it has ended already, or its link or filter carries another program by now. clsact stays:
/// somebody else may be about to use it.
pub(crate) fn end(netlink: &mut Netlink, attachment: &DeviceAttachment) -> Result<bool, LoaderError> {
    let DeviceAttachment {
        device,
        direction,
        manner,
        program_id,
        ..
    } = attachment;
    let failed = || LoaderError::kernel(format!("detach program {program_id} from {}", attachment.place()));
    match *manner {
        DeviceManner::Link { id } => end_link(id, *program_id, device, *direction).map_err(failed()),
        DeviceManner::Program => {
            HeldProgram::find(*program_id)?.map_or(Ok(false), |program| {
                match tcx::detach(device.index, program.as_fd(), direction.attach_type()) {
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
                    detached => detached.map_err(failed()),
                }
            })
        }
        DeviceManner::Filter { .. } => end_filter(netlink, attachment).map_err(failed()),
    }
}

fn end_link(id: u32, program_id: u32, device: &Device, direction: Direction) -> io::Result<bool> {
    let link = match link::open(id) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
        link => link?,
    };
    let here = Target::Device {
        ifindex: device.index,
        attach_type: direction.attach_type(),
    };
    let described = link::describe(link.as_fd())?;
    if described.program_id != program_id || described.target != here {
        return Ok(false);
    }
    link::detach(link.as_fd()).map(|()| true)
}

fn end_filter(netlink: &mut Netlink, attachment: &DeviceAttachment) -> io::Result<bool> {
    let (index, parent) = (attachment.device.index, attachment.direction.parent());
    let same = filter::filters(netlink, index, parent)?
        .into_iter()
        .find(|filter| filter.program_id == attachment.program_id && manner(filter) == attachment.manner);
    let Some(filter) = same else { return Ok(false) };
    filter::remove(netlink, index, &filter)
}
