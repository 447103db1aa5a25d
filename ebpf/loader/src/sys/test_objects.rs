//! Maps with names, and programs from instructions: what only tests make by hand.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use super::{address, bpf_fd, link, map::Layout, raw};

const MAP_CREATE: i32 = 0;
const PROG_LOAD: i32 = 5;

/// `BPF_OBJ_NAME_LEN`, with the zero at the end.
const NAME: usize = 16;

/// A name as the kernel takes it: what is too long for it is cut off, as loaders do.
fn name(text: &str) -> [u8; NAME] {
    let mut padded = [0; NAME];
    for (to, from) in padded.iter_mut().take(NAME - 1).zip(text.bytes()) {
        *to = from;
    }
    padded
}

/// Makes a map with a name.
pub(crate) fn create_map(title: &str, layout: Layout) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
        inner: u32,
        numa_node: u32,
        name: [u8; NAME],
    }
    let Layout {
        map_type,
        key_size,
        value_size,
        max_entries,
        flags,
    } = layout;
    let mut attributes = Create {
        map_type,
        key_size,
        value_size,
        max_entries,
        flags,
        inner: 0,
        numa_node: 0,
        name: name(title),
    };
    // SAFETY: no addresses; returns a new descriptor.
    unsafe { bpf_fd(MAP_CREATE, &mut attributes) }
}

/// Loads a program from its instructions.
pub(crate) fn load(
    title: &str,
    program_type: u32,
    attach_type: u32,
    instructions: &[u64],
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        program_type: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; NAME],
        ifindex: u32,
        attach_type: u32,
    }
    let mut attributes = Load {
        program_type,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: address(instructions.as_ptr()),
        license: address(c"GPL".as_ptr()),
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: name(title),
        ifindex: 0,
        attach_type,
    };
    // SAFETY: instructions and licence outlive the call; returns a new descriptor.
    unsafe { bpf_fd(PROG_LOAD, &mut attributes) }
}

/// Attaches a program to XDP of a device by a link.
pub(crate) fn link_xdp(ifindex: u32, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// `BPF_XDP`.
    const XDP: u32 = 37;
    #[repr(C)]
    struct Create {
        program: u32,
        ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attributes = Create {
        program: raw(program),
        ifindex,
        attach_type: XDP,
        flags: 0,
    };
    // SAFETY: no addresses; returns a new descriptor.
    unsafe { bpf_fd(link::CREATE, &mut attributes) }
}
