//! Ends an attachment, in whichever way it was made, and sees whether it has ended.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::Path,
};

use super::{
    CgroupState, Found, Layer, LooseProgram, Manner, Place,
    cgroups::{self, Hierarchy, Opened},
};
use crate::{
    Direction, HeldProgram, LoaderError, Ownership, XdpMode, device,
    program::retire,
    sys::{
        cgroup as bpf,
        filter::{self, Filter},
        link::{self, Target},
        netlink::{Netlink, errno},
        tcx,
    },
};

/// What it took to end an attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicted {
    /// It was detached.
    Detached,
    /// It had ended already, or what it was made by carries another program by now.
    Gone,
}

/// Ends an attachment, whoever made it and holds it, and looks again. Idempotent; `force`: also what is current, of
/// another node, or somebody else's.
///
/// | attached | ended by |
/// |---|---|
/// | by a link, also of a cgroup that was removed or is not shown, or of a device elsewhere | the link's id (`BPF_LINK_DETACH`): holders and pins keep a link that attaches nothing |
/// | without a link, to a cgroup | `BPF_PROG_DETACH`; a cgroup that no mount shows is opened by handle |
/// | without a link, to a device | `BPF_PROG_DETACH`, or rtnetlink; clsact stays, as somebody else may be about to use it |
///
/// # Errors
/// [`LoaderError::NotEarlier`] without `force`; [`LoaderError::NotEvicted`] says what is in the way, and what to do.
/// What nobody can detach, because its cgroup was removed, is for [`disarm`].
pub fn evict(found: &Found, force: bool) -> Result<Evicted, LoaderError> {
    if found.ownership != Ownership::Earlier && !force {
        return Err(LoaderError::NotEarlier {
            program_id: found.program.id,
            place: found.place.to_string(),
            ownership: found.ownership,
        });
    }
    let ended = match (&found.place, &found.manner) {
        (_, Manner::Link { id, .. }) => detach_link(found, *id)?,
        (
            Place::Cgroup {
                id,
                path,
                state,
                attach_type,
                ..
            },
            _,
        ) => detach_from_cgroup(found, *id, path.as_deref(), *state, *attach_type)?,
        (
            Place::Device {
                index,
                name: Some(_),
                layer,
                direction,
            },
            manner,
        ) => detach_from_device(found, *index, *layer, *direction, manner)?,
        (Place::Device { name: None, .. } | Place::Namespace { .. }, _) => {
            return Err(not_evicted(
                found,
                "it is in another network namespace".to_owned(),
                "do it in that namespace (`nsenter --net=/proc/PID/ns/net`)",
            ));
        }
    };
    Ok(if ended { Evicted::Detached } else { Evicted::Gone })
}

/// Takes the maps of a program of an earlier load out of use, by its META: it, and all of its load, then leave
/// everything alone wherever they run. For programs that can't be detached because nobody can reach what they are
/// attached to: a cgroup that was removed while sockets of it live on. `false`: it was so already, or the program is
/// gone.
///
/// # Errors
/// [`LoaderError::NotEarlier`] for any other program.
pub fn disarm(loose: &LooseProgram) -> Result<bool, LoaderError> {
    let LooseProgram {
        program, ownership, ..
    } = loose;
    if *ownership != Ownership::Earlier {
        return Err(LoaderError::NotEarlier {
            program_id: program.id,
            place: "no place that can be seen".to_owned(),
            ownership: *ownership,
        });
    }
    let failed = || LoaderError::kernel(format!("take the maps of program {} out of use", program.id));
    let mut done = false;
    for map in &program.maps {
        done |= retire(map.id).map_err(failed())?;
    }
    Ok(done)
}

fn not_evicted(found: &Found, why: String, remedy: &'static str) -> LoaderError {
    LoaderError::NotEvicted {
        program_id: found.program.id,
        place: format!("{}, {}", found.place, found.manner),
        why,
        remedy,
    }
}

fn failed(found: &Found) -> impl FnOnce(io::Error) -> LoaderError + use<> {
    LoaderError::kernel(format!(
        "detach program {} from {}, {}",
        found.program.id, found.place, found.manner
    ))
}

/// `false`: it is gone, detached, or carries another program by now.
fn detach_link(found: &Found, id: u32) -> Result<bool, LoaderError> {
    /// After which what is left has to be ended by people.
    const HELD: &str =
        "remove its pins and end the processes that hold it; this kernel detaches no links of this type";
    let link = match link::open(id) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
        link => link.map_err(failed(found))?,
    };
    if !is_attached(found, &link)? {
        return Ok(false);
    }
    match link::detach(link.as_fd()) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            return Err(not_evicted(found, error.to_string(), HELD));
        }
        detached => detached.map_err(failed(found))?,
    }
    if is_attached(found, &link)? {
        return Err(not_evicted(
            found,
            "the kernel says that it was detached, and shows it attached".to_owned(),
            "look again; end the process that attaches it",
        ));
    }
    Ok(true)
}

/// Whether a link attaches the program, to anything.
fn is_attached(found: &Found, link: &OwnedFd) -> Result<bool, LoaderError> {
    let described = link::describe(link.as_fd()).map_err(failed(found))?;
    let somewhere = match described.target {
        Target::Cgroup { id, .. } => id != 0,
        Target::Device { ifindex, .. } | Target::Xdp { ifindex } => ifindex != 0,
        Target::Namespace { inode, .. } => inode != 0,
        Target::Other => true,
    };
    Ok(somewhere && described.program_id == found.program.id)
}

fn detach_from_cgroup(
    found: &Found,
    id: u64,
    path: Option<&Path>,
    state: CgroupState,
    attach_type: u32,
) -> Result<bool, LoaderError> {
    const DYING: &str = "end the processes whose sockets were made in it; a program of this agent does no harm once it \
                         is disarmed";
    let removed = || {
        not_evicted(
            found,
            "its cgroup was removed, and sockets of it live on".to_owned(),
            DYING,
        )
    };
    if state == CgroupState::Dying {
        return Err(removed());
    }
    let shown = path.and_then(|path| File::open(path).ok());
    let shown = shown.filter(|folder| folder.metadata().is_ok_and(|metadata| metadata.ino() == id));
    let folder: OwnedFd = match shown {
        Some(folder) => folder.into(),
        None => match Hierarchy::any()?.open(id) {
            Opened::Folder(folder) => folder,
            Opened::Gone => return Err(removed()),
            Opened::Refused(error) => {
                return Err(not_evicted(
                    found,
                    format!("{error}: it is opened by handle"),
                    "grant CAP_DAC_READ_SEARCH, or mount the whole hierarchy",
                ));
            }
        },
    };
    // Where only one program is let in, the kernel detaches whatever is there.
    let Some(program) = HeldProgram::find(found.program.id)? else {
        return Ok(false);
    };
    if !is_at(found, folder.as_fd(), attach_type)? {
        return Ok(false);
    }
    let detached = bpf::detach(folder.as_fd(), program.as_fd(), attach_type).map_err(failed(found))?;
    Ok(detached)
}

fn is_at(found: &Found, folder: BorrowedFd<'_>, attach_type: u32) -> Result<bool, LoaderError> {
    let attached = cgroups::attached(folder, attach_type).map_err(failed(found))?;
    Ok(attached.is_some_and(|attached| attached.programs.contains(&found.program.id)))
}

fn detach_from_device(
    found: &Found,
    index: u32,
    layer: Layer,
    direction: Direction,
    manner: &Manner,
) -> Result<bool, LoaderError> {
    let mut netlink = device::netlink()?;
    let netlink = &mut netlink;
    let Some(program) = HeldProgram::find(found.program.id)? else {
        return Ok(false);
    };
    let ended = match manner {
        Manner::Filter {
            priority,
            handle,
            chain,
        } => end_filter(netlink, index, direction, |filter| {
            filter.program_id == found.program.id
                && (filter.priority, filter.handle, filter.chain) == (*priority, *handle, *chain)
        }),
        Manner::XdpNetlink { mode } => end_xdp(netlink, index, *mode, &program),
        Manner::Legacy { .. } | Manner::Link { .. } => {
            let attach_type = match (layer, direction) {
                (Layer::Netkit, Direction::Ingress) => super::devices::NETKIT_PEER,
                (Layer::Netkit, Direction::Egress) => super::devices::NETKIT_PRIMARY,
                (_, direction) => direction.attach_type(),
            };
            match tcx::detach(index, program.as_fd(), attach_type) {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
                detached => detached,
            }
        }
    };
    ended.map_err(failed(found))
}

/// Removes a filter, if it is there.
fn end_filter(
    netlink: &mut Netlink,
    index: u32,
    direction: Direction,
    is_it: impl Fn(&Filter) -> bool,
) -> io::Result<bool> {
    let filters = match filter::filters(netlink, index, direction.parent()) {
        Err(error) if errno(&error) == Some(libc::ENODEV) => return Ok(false),
        filters => filters?,
    };
    let Some(filter) = filters.into_iter().find(is_it) else {
        return Ok(false);
    };
    filter::remove(netlink, index, &filter)
}

/// Removes a program of XDP, if it is still there.
fn end_xdp(netlink: &mut Netlink, index: u32, mode: XdpMode, program: &HeldProgram) -> io::Result<bool> {
    let is_there = |netlink: &mut Netlink| -> io::Result<bool> {
        let devices = filter::devices(netlink)?;
        let device = devices.iter().find(|device| device.ifindex == index);
        Ok(device.is_some_and(|device| {
            device
                .xdp
                .iter()
                .any(|xdp| xdp.mode == mode && xdp.program_id == program.id())
        }))
    };
    if !is_there(netlink)? {
        return Ok(false);
    }
    match filter::remove_xdp(netlink, index, mode, program.as_fd()) {
        // Another has taken its place since.
        Err(error) if errno(&error) == Some(libc::EEXIST) => Ok(false),
        removed => removed,
    }
}
