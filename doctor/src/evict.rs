//! Ends an attachment, in whichever way it was made, and sees whether it has ended; disarms what can't be detached.

use std::{io, path::Path};

use lb_loader::{
    Cgroup, Device, DeviceManner, DeviceProgram, HeldLink, HeldProgram, LoaderError, Ownership, retire,
};

use crate::inventory::{
    CgroupState, Found, LooseProgram, Manner, Place,
    cgroups::{Hierarchy, Opened},
};

/// Why an attachment is not ended, or a program not disarmed.
#[derive(Debug, thiserror::Error)]
pub enum EvictionError {
    /// What was detached, or should have ended by itself, has not.
    #[error(
        "programs of ours are still attached, or again: {}; is another process attaching them?",
        attached.join(", ")
    )]
    StillAttached {
        /// Each program and where it is.
        attached: Vec<String>,
    },
    /// Asked to evict what is not a leftover.
    #[error(
        "program {program_id} at {place} is {ownership:?} and stays: only programs of an earlier load are evicted"
    )]
    NotEarlier {
        /// The program.
        program_id: u32,
        /// Where it is attached.
        place: String,
        /// Whose it is.
        ownership: Ownership,
    },
    /// An attachment could not be ended.
    #[error("program {program_id} is still at {place}: {why}; {remedy}")]
    NotEvicted {
        /// The program.
        program_id: u32,
        /// Where it is attached, and how.
        place: String,
        /// What is in the way.
        why: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// It could not be looked at or ended.
    #[error(transparent)]
    Loader(#[from] LoaderError),
}

/// What it took to end an attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicted {
    /// It was detached.
    Detached,
    /// It had ended already, or what it was made by carries another program by now.
    Gone,
}

/// Ends an attachment of any owner, held by any process, and looks again. Idempotent; `force`: also what is current, of
/// another node, or of another project.
///
/// | attached | ended by |
/// |---|---|
/// | by a link, also of a cgroup that was removed or is not shown, or of a device elsewhere | the link's id (`BPF_LINK_DETACH`): holders and pins keep a link that attaches nothing |
/// | without a link, to a cgroup | `BPF_PROG_DETACH`; a cgroup that no mount shows is opened by handle |
/// | without a link, to a device | `BPF_PROG_DETACH`, or rtnetlink; clsact stays, as another program may be about to use it |
///
/// # Errors
/// [`EvictionError::NotEarlier`] without `force`; [`EvictionError::NotEvicted`] says what is in the way, and what to do.
/// What can't be detached, because its cgroup was removed, is for [`disarm`].
pub fn evict(found: &Found, force: bool) -> Result<Evicted, EvictionError> {
    if found.ownership != Ownership::Earlier && !force {
        return Err(EvictionError::NotEarlier {
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
                name: Some(name),
                layer,
                direction,
            },
            manner,
        ) => {
            let program = DeviceProgram {
                device: Device {
                    index: *index,
                    name: name.clone(),
                },
                layer: *layer,
                direction: *direction,
                manner: match *manner {
                    Manner::Legacy { .. } => DeviceManner::Program,
                    Manner::Link { id, .. } => DeviceManner::Link { id },
                    Manner::Filter {
                        priority,
                        handle,
                        chain,
                    } => DeviceManner::Filter {
                        priority,
                        handle,
                        chain,
                    },
                    Manner::XdpNetlink { mode } => DeviceManner::Xdp { mode },
                },
                program_id: found.program.id,
            };
            program.detach().map_err(failed(found))?
        }
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
/// everything alone wherever they run. For programs that can't be detached because what they are attached to can't be
/// reached: a cgroup that was removed while sockets of it live on. `false`: it was so already, or the program is gone.
///
/// # Errors
/// [`EvictionError::NotEarlier`] for any other program.
pub fn disarm(loose: &LooseProgram) -> Result<bool, EvictionError> {
    let LooseProgram {
        program, ownership, ..
    } = loose;
    if *ownership != Ownership::Earlier {
        return Err(EvictionError::NotEarlier {
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

fn not_evicted(found: &Found, why: String, remedy: &'static str) -> EvictionError {
    EvictionError::NotEvicted {
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
fn detach_link(found: &Found, id: u32) -> Result<bool, EvictionError> {
    /// After which what is left has to be ended by people.
    const HELD: &str =
        "remove its pins and end the processes that hold it; this kernel detaches no links of this type";
    let Some(link) = HeldLink::find(id).map_err(failed(found))? else {
        return Ok(false);
    };
    if !is_attached(found, &link)? {
        return Ok(false);
    }
    match link.detach() {
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
fn is_attached(found: &Found, link: &HeldLink) -> Result<bool, LoaderError> {
    let described = link.describe().map_err(failed(found))?;
    Ok(described.target.is_there() && described.program_id == found.program.id)
}

fn detach_from_cgroup(
    found: &Found,
    id: u64,
    path: Option<&Path>,
    state: CgroupState,
    attach_type: u32,
) -> Result<bool, EvictionError> {
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
    let shown = path.and_then(|path| Cgroup::open(path).ok());
    let cgroup = match shown.filter(|cgroup| cgroup.id() == id) {
        Some(cgroup) => cgroup,
        None => match Hierarchy::any()?.open(id) {
            Opened::Cgroup(cgroup) => cgroup,
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
    let attached = cgroup.attached(attach_type).map_err(failed(found))?;
    if attached.is_none_or(|attached| !attached.programs.contains(&found.program.id)) {
        return Ok(false);
    }
    Ok(cgroup.detach(attach_type, &program).map_err(failed(found))?)
}
