//! TCX: programs at network devices, by link or without (Linux 6.6); netkit's own hooks are asked in the same way.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use super::{address, bpf, bpf_fd, link, raw};

/// `BPF_TCX_INGRESS`.
pub(crate) const INGRESS: u32 = 46;
/// `BPF_TCX_EGRESS`.
pub(crate) const EGRESS: u32 = 47;
/// `BPF_NETKIT_PRIMARY`: what its device sends.
pub(crate) const NETKIT_PRIMARY: u32 = 54;
/// `BPF_NETKIT_PEER`: what the other end sends to it.
pub(crate) const NETKIT_PEER: u32 = 55;

const PROG_DETACH: i32 = 9;
const PROG_QUERY: i32 = 16;

/// One program at a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) program_id: u32,
    /// The link that attaches it; `None`: `BPF_PROG_ATTACH` did.
    pub(crate) link_id: Option<u32>,
}

/// What is attached to a device of the calling thread's network namespace, in the order in which it runs; `None`: the
/// kernel has no TCX.
///
/// # Errors
/// ENODEV if there is no such device.
pub(crate) fn query(ifindex: u32, attach_type: u32) -> io::Result<Option<Vec<Entry>>> {
    /// `BPF_MPROG_MAX`: the kernel allows no more.
    const MOST: usize = 64;
    #[repr(C)]
    struct Query {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        program_ids: u64,
        count: u32,
        pad: u32,
        program_attach_flags: u64,
        link_ids: u64,
        link_attach_flags: u64,
        revision: u64,
    }
    let (mut programs, mut links) = ([0_u32; MOST], [0_u32; MOST]);
    let mut attributes = Query {
        target: ifindex,
        attach_type,
        query_flags: 0,
        attach_flags: 0,
        program_ids: address(programs.as_mut_ptr()),
        count: u32::try_from(MOST).map_err(io::Error::other)?,
        pad: 0,
        program_attach_flags: 0,
        link_ids: address(links.as_mut_ptr()),
        link_attach_flags: 0,
        revision: 0,
    };
    // SAFETY: there is room for `count` ids of each.
    match unsafe { bpf(PROG_QUERY, &mut attributes) } {
        Ok(_) => {}
        // Nothing has ever been attached to it.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Some(Vec::new())),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(error) => return Err(error),
    }
    let count = usize::try_from(attributes.count).unwrap_or(MOST);
    let entries = programs.into_iter().zip(links).take(count);
    Ok(Some(
        entries
            .map(|(program_id, link)| Entry {
                program_id,
                link_id: (link != 0).then_some(link),
            })
            .collect(),
    ))
}

/// Attaches a program by a link, ahead of all that are there or after them; the link lives as long as its descriptors
/// and pins, and attaches nothing once the device is gone.
pub(crate) fn create(
    ifindex: u32,
    program: BorrowedFd<'_>,
    attach_type: u32,
    first: bool,
) -> io::Result<OwnedFd> {
    /// `BPF_F_BEFORE` and `BPF_F_AFTER`, without another program: the beginning and the end.
    const BEFORE: u32 = 1 << 3;
    const AFTER: u32 = 1 << 4;
    #[repr(C)]
    struct Create {
        program: u32,
        ifindex: u32,
        attach_type: u32,
        flags: u32,
        relative: u32,
        pad: u32,
        expected_revision: u64,
    }
    let mut attributes = Create {
        program: raw(program),
        ifindex,
        attach_type,
        flags: if first { BEFORE } else { AFTER },
        relative: 0,
        pad: 0,
        expected_revision: 0,
    };
    // SAFETY: no addresses; returns a new descriptor.
    unsafe { bpf_fd(link::CREATE, &mut attributes) }
}

#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// `BPF_PROG_ATTACH`: after all that are there.
pub(crate) fn attach(ifindex: u32, program: BorrowedFd<'_>, attach_type: u32) -> io::Result<()> {
    const PROG_ATTACH: i32 = 8;
    let mut attributes = Attach {
        target: ifindex,
        program: raw(program),
        attach_type,
        flags: 0,
    };
    // SAFETY: no addresses.
    unsafe { bpf(PROG_ATTACH, &mut attributes) }.map(drop)
}

/// Undoes a `BPF_PROG_ATTACH`; `false`: it was not attached that way.
pub(crate) fn detach(ifindex: u32, program: BorrowedFd<'_>, attach_type: u32) -> io::Result<bool> {
    let mut attributes = Attach {
        target: ifindex,
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
