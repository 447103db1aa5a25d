//! Whose programs are attached to devices, at the layers where our own programs go.

use std::collections::HashMap;

use super::{DeviceAttachment, DeviceManner, DeviceProgram, device_programs};
use crate::{
    Device, Direction, HeldProgram, Layer, LoaderError, Ownership,
    object::Programs,
    sys::{
        clsact::{self, Link},
        netlink::Netlink,
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

    /// With whose it is; `None`: it has been detached since, and is gone.
    fn attachment(
        &mut self,
        program: DeviceProgram,
        programs: Option<&Programs>,
    ) -> Result<Option<DeviceAttachment>, LoaderError> {
        let owned = self.of(program.program_id)?;
        Ok(owned.map(|owned| DeviceAttachment {
            device: program.device,
            direction: program.direction,
            hook: programs.and_then(|programs| programs.device_hook(program.program_id)),
            manner: program.manner,
            program_id: program.program_id,
            ownership: owned.ownership,
            name: owned.name,
            map_ids: owned.map_ids,
        }))
    }
}

/// What is attached to every device; `programs`: those that are [`Ownership::Current`].
pub(crate) fn attachments(
    netlink: &mut Netlink,
    programs: Option<&Programs>,
) -> Result<Vec<DeviceAttachment>, LoaderError> {
    let devices = clsact::devices(netlink).map_err(LoaderError::kernel("list network devices"))?;
    let devices = devices
        .into_iter()
        .map(|Link { ifindex, name, .. }| Device { index: ifindex, name });
    at(netlink, devices, programs)
}

/// What is attached to these devices, where our own programs are: at TCX, then at clsact.
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
            for layer in [Layer::Tcx, Layer::Clsact] {
                for program in device_programs::at(netlink, &device, layer, direction)? {
                    found.extend(owners.attachment(program, programs)?);
                }
            }
        }
    }
    Ok(found)
}

/// Detaches what is attached. `false`: it is detached already, or its link or filter carries another program by now.
pub(crate) fn end(netlink: &mut Netlink, attachment: &DeviceAttachment) -> Result<bool, LoaderError> {
    let program = DeviceProgram {
        device: attachment.device.clone(),
        layer: match attachment.manner {
            DeviceManner::Link { .. } | DeviceManner::Program => Layer::Tcx,
            DeviceManner::Filter { .. } => Layer::Clsact,
            DeviceManner::Xdp { .. } => Layer::Xdp,
        },
        direction: attachment.direction,
        manner: attachment.manner,
        program_id: attachment.program_id,
    };
    program.end(netlink).map_err(LoaderError::kernel(format!(
        "detach program {} from {} of {}",
        program.program_id, program.direction, program.device
    )))
}
