//! Attachments, as the kernel says in its several ways: by cgroup, by device, by link.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use lb_loader::{
    DeviceManner, DeviceProgram, Direction, Layer, Link, LinkTarget, LoaderError, device_programs, links,
};

use super::{
    CgroupState, Found, Manner, Place,
    cgroups::{Group, Hierarchy, Opened, Walked},
    names,
    programs::{Owner, Programs},
};

/// An attachment as the kernel names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Raw {
    place: Place,
    order: u32,
    pub(crate) program_id: u32,
    manner: Manner,
}

/// Attachments as the kernel names them, and what was walked for them.
pub(crate) struct Attached {
    pub(crate) raw: Vec<Raw>,
    pub(crate) walked: Walked,
}

/// All attachments to these hooks of cgroups, to devices, and by links to whatever else.
pub(crate) fn attached(hierarchy: &Hierarchy, hooks: &[u32]) -> Result<Attached, LoaderError> {
    let mut links = Links::list()?;
    let mut raw = Vec::new();
    let walked = hierarchy.walk(|group| at_cgroup(group, hooks, &mut links, &mut raw))?;
    at_devices(&mut links, &mut raw)?;
    raw.extend(links.rest().filter_map(|link| elsewhere(hierarchy, &link)));
    Ok(Attached { raw, walked })
}

/// Those to the node's own cgroup and to the devices of its network namespace alone.
pub(crate) fn attached_to(hierarchy: &Hierarchy, hooks: &[u32]) -> Result<Attached, LoaderError> {
    let mut links = Links::list()?;
    let mut raw = Vec::new();
    let walked = hierarchy.own(|group| at_cgroup(group, hooks, &mut links, &mut raw))?;
    at_devices(&mut links, &mut raw)?;
    Ok(Attached { raw, walked })
}

fn at_cgroup(group: &Group, hooks: &[u32], links: &mut Links, raw: &mut Vec<Raw>) -> Result<(), LoaderError> {
    for hook in hooks {
        let attached = group.cgroup.attached(*hook).map_err(LoaderError::kernel(format!(
            "ask what is attached to {} of cgroup {}",
            names::attach_type(*hook),
            group.cgroup.id()
        )))?;
        let Some(attached) = attached else { continue };
        for (order, program_id) in (0..).zip(attached.programs) {
            let target = LinkTarget::Cgroup {
                id: group.cgroup.id(),
                attach_type: *hook,
            };
            let legacy = Manner::Legacy {
                flags: attached.flags,
            };
            raw.push(Raw {
                place: cgroup(group.cgroup.id(), group.path.clone(), group.state(), *hook),
                order,
                program_id,
                manner: links.take(target, program_id).map_or(legacy, by_link),
            });
        }
    }
    Ok(())
}

fn at_devices(links: &mut Links, raw: &mut Vec<Raw>) -> Result<(), LoaderError> {
    let mut last = None;
    let mut order = 0;
    for found in device_programs()? {
        let DeviceProgram {
            device,
            layer,
            direction,
            manner,
            program_id,
        } = found;
        let at = Some((device.index, layer, direction));
        order = if at == last { order + 1 } else { 0 };
        last = at;
        let manner = match manner {
            DeviceManner::Link { id } => {
                links.forget(id);
                by_link(id)
            }
            DeviceManner::Program => Manner::Legacy { flags: 0 },
            DeviceManner::Filter {
                priority,
                handle,
                chain,
            } => Manner::Filter {
                priority,
                handle,
                chain,
            },
            DeviceManner::Xdp { mode } => {
                let target = LinkTarget::Xdp {
                    ifindex: device.index,
                };
                links
                    .take(target, program_id)
                    .map_or(Manner::XdpNetlink { mode }, by_link)
            }
        };
        raw.push(Raw {
            place: Place::Device {
                index: device.index,
                name: Some(device.name),
                layer,
                direction,
            },
            order,
            program_id,
            manner,
        });
    }
    Ok(())
}

fn by_link(id: u32) -> Manner {
    Manner::Link {
        id,
        pinned_at: Vec::new(),
        held_by: Vec::new(),
    }
}

fn cgroup(id: u64, path: Option<PathBuf>, state: CgroupState, attach_type: u32) -> Place {
    Place::Cgroup {
        id,
        path,
        state,
        attach_type,
        attach_name: names::attach_type(attach_type),
    }
}

/// Where a link is attached that no cgroup and no device here has shown; `None`: nowhere, or to what moves no packets.
fn elsewhere(hierarchy: &Hierarchy, link: &Link) -> Option<Raw> {
    let device = |index, layer, direction| Place::Device {
        index,
        name: None,
        layer,
        direction,
    };
    if !link.target.is_there() {
        return None;
    }
    let place = match link.target {
        LinkTarget::Other => return None,
        LinkTarget::Cgroup { id, attach_type } => {
            let state = match hierarchy.open(id) {
                Opened::Cgroup(_) | Opened::Refused(_) => CgroupState::Hidden,
                Opened::Gone => CgroupState::Dying,
            };
            cgroup(id, None, state, attach_type)
        }
        LinkTarget::Device { ifindex, attach_type } => {
            let (layer, direction) = Layer::of(attach_type)?;
            device(ifindex, layer, direction)
        }
        LinkTarget::Xdp { ifindex } => device(ifindex, Layer::Xdp, Direction::Ingress),
        LinkTarget::Namespace { inode, attach_type } => Place::Namespace {
            inode,
            attach_type,
            attach_name: names::attach_type(attach_type),
        },
    };
    Some(Raw {
        place,
        order: 0,
        program_id: link.program_id,
        manner: by_link(link.id),
    })
}

/// Says of each what program it is and whose; those whose programs are gone by now are left out.
pub(crate) fn describe(
    raw: Vec<Raw>,
    programs: &mut Programs,
    owner: &Owner,
) -> Result<Vec<Found>, LoaderError> {
    let ids: HashSet<u32> = raw.iter().map(|raw| raw.program_id).collect();
    for id in ids {
        programs.get(id)?;
    }
    let mut found = Vec::with_capacity(raw.len());
    for Raw {
        place,
        order,
        program_id,
        manner,
    } in raw
    {
        if let Some(known) = programs.known(program_id) {
            found.push(Found {
                place,
                order,
                program: known.description.clone(),
                manner,
                ownership: owner.of(programs, known),
            });
        }
    }
    Ok(found)
}

/// Links by where they are attached and what they carry.
struct Links {
    by_target: HashMap<(LinkTarget, u32), Vec<u32>>,
    all: HashMap<u32, Link>,
}

impl Links {
    fn list() -> Result<Self, LoaderError> {
        let all = links()?;
        let mut by_target: HashMap<_, Vec<u32>> = HashMap::new();
        // Those that were made first are taken last, and so first from the end.
        for link in all.iter().rev() {
            by_target
                .entry((link.target, link.program_id))
                .or_default()
                .push(link.id);
        }
        Ok(Self {
            by_target,
            all: all.into_iter().map(|link| (link.id, link)).collect(),
        })
    }

    /// One that attaches a program there. A program may be attached by several; each accounts for one attachment.
    fn take(&mut self, target: LinkTarget, program_id: u32) -> Option<u32> {
        let id = self.by_target.get_mut(&(target, program_id))?.pop()?;
        self.all.remove(&id);
        Some(id)
    }

    fn forget(&mut self, id: u32) {
        self.all.remove(&id);
    }

    /// Those that were not taken, by id.
    fn rest(self) -> impl Iterator<Item = Link> {
        let mut rest: Vec<Link> = self.all.into_values().collect();
        rest.sort_unstable_by_key(|link| link.id);
        rest.into_iter()
    }
}
