//! Attachments to cgroups: by link, and the legacy way.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use super::{address, bpf, bpf_fd, link, raw};

const PROG_ATTACH: i32 = 8;
const PROG_DETACH: i32 = 9;
const PROG_QUERY: i32 = 16;

/// `BPF_F_ALLOW_OVERRIDE`: a program that those of cgroups below replace there.
pub const ALLOW_OVERRIDE: u32 = 1;
/// `BPF_F_ALLOW_MULTI`: one that runs beside others, there and below.
pub const ALLOW_MULTI: u32 = 1 << 1;
/// `BPF_F_QUERY_EFFECTIVE`.
const EFFECTIVE: u32 = 1;

/// What is attached to a hook of a cgroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// Ids in the order in which they run, once for each attachment.
    pub programs: Vec<u32>,
    /// How the cgroup was attached to: [`ALLOW_MULTI`], [`ALLOW_OVERRIDE`], or 0; of the effective ones, 0.
    pub flags: u32,
}

/// What is attached to a hook; `effective`: with what is inherited from the cgroups above.
pub(crate) fn query(cgroup: BorrowedFd<'_>, attach_type: u32, effective: bool) -> io::Result<Attached> {
    #[repr(C)]
    struct Query {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        program_ids: u64,
        count: u32,
        pad: u32,
        program_flags: u64,
    }
    /// `BPF_LSM_CGROUP`, which is several hooks: the kernel says how to attach to each only with each program. No other
    /// hook's query may ask for that before Linux 6.0.
    const LSM: u32 = 43;
    /// The kernel allows 64 programs for each cgroup and hook.
    const PER_CGROUP: usize = 64;
    /// Of the effective ones, those of every cgroup up to the root: this is for nesting 64 deep.
    const MOST: usize = 64 * PER_CGROUP;
    let mut size = PER_CGROUP;
    loop {
        let (mut found, mut flags) = (vec![0_u32; size], vec![0_u32; size]);
        let mut attributes = Query {
            target: raw(cgroup),
            attach_type,
            query_flags: if effective { EFFECTIVE } else { 0 },
            attach_flags: 0,
            program_ids: address(found.as_mut_ptr()),
            count: u32::try_from(size).map_err(io::Error::other)?,
            pad: 0,
            program_flags: if attach_type == LSM && !effective {
                address(flags.as_mut_ptr())
            } else {
                0
            },
        };
        // SAFETY: there is room for `count` ids, and as many flags.
        match unsafe { bpf(PROG_QUERY, &mut attributes) } {
            Ok(_) => {
                found.truncate(usize::try_from(attributes.count).unwrap_or(size));
                return Ok(Attached {
                    programs: found,
                    // Those of the first, where each program has its own: a cgroup takes them all in one way.
                    flags: attributes.attach_flags | flags.first().copied().unwrap_or(0),
                });
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

/// `BPF_PROG_ATTACH`; `flags`: [`ALLOW_MULTI`], [`ALLOW_OVERRIDE`], or 0.
pub(crate) fn attach(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    attach_type: u32,
    flags: u32,
) -> io::Result<()> {
    let mut attributes = Attach {
        target: raw(cgroup),
        program: raw(program),
        attach_type,
        flags,
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

#[cfg(test)]
mod tests {
    use std::{fs, fs::File, os::fd::AsFd as _, path::Path};

    use super::*;
    use crate::mounts;

    #[test]
    fn the_hook_of_security_modules_is_asked_about_as_the_kernel_wants() {
        let name = testing::current();
        if !testing::root_or_skip(&name) {
            return;
        }
        let symbols = fs::read_to_string("/proc/kallsyms").expect("the kernel's symbols");
        if !symbols.contains(" __cgroup_bpf_run_lsm_socket") {
            return testing::skip(
                &name,
                "this kernel has no BPF_LSM_CGROUP (Linux 6.0, CONFIG_BPF_LSM)",
            );
        }
        let mounts = mounts::points(Path::new("/proc/thread-self"), "cgroup2").expect("the mounts");
        let mount = mounts.first().expect("a cgroup2 file system is mounted");
        let folder = File::open(mount).expect("its root");
        query(folder.as_fd(), 43, false).expect("what is attached, if anything");
    }
}
