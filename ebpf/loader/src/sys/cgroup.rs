//! Attachments to cgroups: by link, and the legacy way.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::{address, bpf, bpf_fd, by_id, ids, info, raw};

const PROG_ATTACH: i32 = 8;
const PROG_DETACH: i32 = 9;
const PROG_QUERY: i32 = 16;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const LINK_GET_FD_BY_ID: i32 = 30;
const LINK_GET_NEXT_ID: i32 = 31;
const LINK_DETACH: i32 = 34;

/// `BPF_F_ALLOW_MULTI`.
const ALLOW_MULTI: u32 = 1 << 1;
/// `BPF_F_QUERY_EFFECTIVE`.
const EFFECTIVE: u32 = 1;
/// `BPF_LINK_TYPE_CGROUP`.
const LINK_TYPE_CGROUP: u32 = 3;

/// Ids of the programs at a hook, in the order in which they run, once for each attachment.
pub(crate) fn query(cgroup: BorrowedFd<'_>, attach_type: u32, effective: bool) -> io::Result<Vec<u32>> {
    #[repr(C)]
    struct Query {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        program_ids: u64,
        count: u32,
        pad: u32,
    }
    /// The kernel allows 64 programs for each cgroup and hook.
    const PER_CGROUP: usize = 64;
    /// Of the effective ones, those of every cgroup up to the root: this is for nesting 64 deep.
    const MOST: usize = 64 * PER_CGROUP;
    let mut size = PER_CGROUP;
    loop {
        let mut found = vec![0_u32; size];
        let mut attributes = Query {
            target: raw(cgroup),
            attach_type,
            query_flags: if effective { EFFECTIVE } else { 0 },
            attach_flags: 0,
            program_ids: address(found.as_mut_ptr()),
            count: u32::try_from(size).map_err(io::Error::other)?,
            pad: 0,
        };
        // SAFETY: there is room for `count` ids.
        match unsafe { bpf(PROG_QUERY, &mut attributes) } {
            Ok(_) => {
                found.truncate(usize::try_from(attributes.count).unwrap_or(size));
                return Ok(found);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && size < MOST => size *= 2,
            Err(error) => return Err(error),
        }
    }
}

#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// `BPF_PROG_ATTACH` with `BPF_F_ALLOW_MULTI`.
pub(crate) fn attach_multi(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    attach_type: u32,
) -> io::Result<()> {
    let mut attributes = Attach {
        target: raw(cgroup),
        program: raw(program),
        attach_type,
        flags: ALLOW_MULTI,
    };
    // SAFETY: no addresses.
    unsafe { bpf(PROG_ATTACH, &mut attributes) }.map(drop)
}

/// `BPF_PROG_DETACH`; `false`: it was not attached that way.
pub(crate) fn detach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>, attach_type: u32) -> io::Result<bool> {
    let mut attributes = Attach {
        target: raw(cgroup),
        program: raw(program),
        attach_type,
        flags: 0,
    };
    // SAFETY: no addresses.
    match unsafe { bpf(PROG_DETACH, &mut attributes) } {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the kernel tells of a link of a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CgroupLink {
    pub(crate) id: u32,
    pub(crate) program_id: u32,
    /// 0: detached, or its cgroup was removed.
    pub(crate) cgroup_id: u64,
    pub(crate) attach_type: u32,
}

/// Attaches a program by a link, which lives as long as its descriptors and pins.
pub(crate) fn link_create(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    attach_type: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attributes = Create {
        program: raw(program),
        target: raw(cgroup),
        attach_type,
        flags: 0,
    };
    // SAFETY: no addresses; returns a new descriptor.
    unsafe { bpf_fd(LINK_CREATE, &mut attributes) }
}

/// Puts another program in the place of a link's: there is no moment with both or neither.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Update {
        link: u32,
        program: u32,
        flags: u32,
        old_program: u32,
    }
    let mut attributes = Update {
        link: raw(link),
        program: raw(program),
        flags: 0,
        old_program: 0,
    };
    // SAFETY: no addresses.
    unsafe { bpf(LINK_UPDATE, &mut attributes) }.map(drop)
}

/// Detaches a link, whoever holds it.
pub(crate) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Detach {
        link: u32,
    }
    // SAFETY: no addresses.
    unsafe { bpf(LINK_DETACH, &mut Detach { link: raw(link) }) }.map(drop)
}

/// Opens a link by id.
pub(crate) fn link_open(id: u32) -> io::Result<OwnedFd> {
    by_id(LINK_GET_FD_BY_ID, id, 0)
}

/// Describes a link; `None`: it is not of a cgroup.
pub(crate) fn link_describe(link: BorrowedFd<'_>) -> io::Result<Option<CgroupLink>> {
    #[repr(C)]
    #[derive(Default)]
    struct LinkInfo {
        link_type: u32,
        id: u32,
        program_id: u32,
        pad: u32,
        cgroup_id: u64,
        attach_type: u32,
        end: u32,
    }
    let mut found = LinkInfo::default();
    // SAFETY: the beginning of bpf_link_info. Links of other types take the union's first bytes for an address and a
    // size of a buffer to write to; both are zero.
    unsafe { info(link, &mut found) }?;
    let LinkInfo {
        link_type,
        id,
        program_id,
        cgroup_id,
        attach_type,
        ..
    } = found;
    Ok((link_type == LINK_TYPE_CGROUP).then_some(CgroupLink {
        id,
        program_id,
        cgroup_id,
        attach_type,
    }))
}

/// Every link of a cgroup on this machine; those that end meanwhile (ENOENT) or are about to come to be (EAGAIN)
/// are left out.
pub(crate) fn links() -> io::Result<Vec<CgroupLink>> {
    let mut links = Vec::new();
    for id in ids(LINK_GET_NEXT_ID) {
        let described = link_open(id?).and_then(|link| link_describe(link.as_fd()));
        match described {
            Ok(link) => links.extend(link),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EAGAIN)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}
