//! Attachments to cgroups: by link, and the legacy way.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use super::{address, bpf, bpf_fd, link, raw};

const PROG_ATTACH: i32 = 8;
const PROG_DETACH: i32 = 9;
const PROG_QUERY: i32 = 16;

/// `BPF_F_ALLOW_MULTI`.
const ALLOW_MULTI: u32 = 1 << 1;
/// `BPF_F_QUERY_EFFECTIVE`.
const EFFECTIVE: u32 = 1;

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
    unsafe { bpf_fd(link::CREATE, &mut attributes) }
}
