//! Links: what keeps a program attached, whatever it is attached to.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::{bpf, by_id, ids, info, raw};

/// `BPF_LINK_CREATE`.
pub(crate) const CREATE: i32 = 28;
const UPDATE: i32 = 29;
const GET_FD_BY_ID: i32 = 30;
const GET_NEXT_ID: i32 = 31;
const DETACH: i32 = 34;

/// What the kernel tells of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its id.
    pub id: u32,
    /// The program that it attaches.
    pub program_id: u32,
    /// What to.
    pub target: Target,
}

/// Where a link attaches its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A hook of a cgroup.
    Cgroup {
        /// The cgroup; 0 if the link is detached, or its cgroup was removed.
        id: u64,
        /// `enum bpf_attach_type`.
        attach_type: u32,
    },
    /// TCX or netkit's own hooks.
    Device {
        /// The device; 0 if the link is detached, or its device is gone.
        ifindex: u32,
        /// `enum bpf_attach_type`.
        attach_type: u32,
    },
    /// XDP.
    Xdp {
        /// As of [`Device`](Self::Device).
        ifindex: u32,
    },
    /// A network namespace.
    Namespace {
        /// The number of its file; 0 if it is gone.
        inode: u32,
        /// `enum bpf_attach_type`.
        attach_type: u32,
    },
    /// Anything else.
    Other,
}

impl Target {
    /// Whether the link still attaches its program to something.
    pub const fn is_there(self) -> bool {
        match self {
            Self::Cgroup { id, .. } => id != 0,
            Self::Device { ifindex, .. } | Self::Xdp { ifindex } => ifindex != 0,
            Self::Namespace { inode, .. } => inode != 0,
            Self::Other => true,
        }
    }
}

/// Puts another program in the place of a link's: there is no moment with both or neither.
pub(crate) fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
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
    unsafe { bpf(UPDATE, &mut attributes) }.map(drop)
}

/// Detaches a link, also one that other processes hold.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Detach {
        link: u32,
    }
    // SAFETY: no addresses.
    unsafe { bpf(DETACH, &mut Detach { link: raw(link) }) }.map(drop)
}

/// Opens a link by id.
pub(crate) fn open(id: u32) -> io::Result<OwnedFd> {
    by_id(GET_FD_BY_ID, id, 0)
}

/// Describes a link.
pub(crate) fn describe(link: BorrowedFd<'_>) -> io::Result<Link> {
    /// `BPF_LINK_TYPE_CGROUP`.
    const CGROUP: u32 = 3;
    /// `BPF_LINK_TYPE_NETNS`.
    const NAMESPACE: u32 = 5;
    /// `BPF_LINK_TYPE_XDP`.
    const XDP: u32 = 6;
    /// `BPF_LINK_TYPE_TCX`.
    const TCX: u32 = 11;
    /// `BPF_LINK_TYPE_NETKIT`.
    const NETKIT: u32 = 13;
    #[repr(C)]
    #[derive(Default)]
    struct LinkInfo {
        link_type: u32,
        id: u32,
        program_id: u32,
        pad: u32,
        /// Of a cgroup: its id, and the attach type. Of a device or network namespace: its index or number, and the
        /// attach type, which are the two halves of the first word.
        target: [u32; 4],
    }
    let mut found = LinkInfo::default();
    // SAFETY: the beginning of bpf_link_info. Links of other types take the union's first bytes for an address and a
    // size of a buffer to write to; both are zero.
    unsafe { info(link, &mut found) }?;
    let LinkInfo {
        link_type,
        id,
        program_id,
        target: [first, second, third, _],
        ..
    } = found;
    let target = match link_type {
        CGROUP => Target::Cgroup {
            id: u64::from_ne_bytes(join(first, second)),
            attach_type: third,
        },
        TCX | NETKIT => Target::Device {
            ifindex: first,
            attach_type: second,
        },
        XDP => Target::Xdp { ifindex: first },
        NAMESPACE => Target::Namespace {
            inode: first,
            attach_type: second,
        },
        _ => Target::Other,
    };
    Ok(Link {
        id,
        program_id,
        target,
    })
}

/// Two words as they lie in memory.
const fn join(first: u32, second: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Every link on this machine; those that end meanwhile (ENOENT) or are about to come to be (EAGAIN) are left out.
pub(crate) fn all() -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    for id in ids(GET_NEXT_ID) {
        let described = open(id?).and_then(|link| describe(link.as_fd()));
        match described {
            Ok(link) => links.push(link),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EAGAIN)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}
