//! Somebody else's programs and maps.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    path::Path,
};

use aya::maps::{Array, Map, MapData};
use lb_abi::Meta;
use lb_loader::{HeldProgram, Hook};

use super::Node;

/// A socket program of another project, with the name of ours: it lets everything pass.
pub(crate) struct ForeignProgram(pub(crate) HeldProgram);

impl ForeignProgram {
    /// That uses no map, or one.
    pub(crate) fn load(hook: Hook, map: Option<&MapData>) -> Self {
        let map = map.map(|map| map.fd().as_fd().as_raw_fd());
        let program = load(hook, map).expect("a program that only passes is accepted");
        let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
        let id = fs::read_to_string(&path)
            .expect("fdinfo of a program")
            .lines()
            .find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
            .expect("prog_id in fdinfo");
        Self(HeldProgram::by_id(id).expect("it is loaded"))
    }
}

/// `r1 = map; r0 = 1; exit`, or without the first.
fn load(hook: Hook, map: Option<RawFd>) -> io::Result<OwnedFd> {
    const PROG_LOAD: i32 = 5;
    const CGROUP_SOCK_ADDR: u32 = 18;
    #[repr(C)]
    struct Load {
        program_type: u32,
        count: u32,
        instructions: *const u64,
        license: *const libc::c_char,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let mut instructions = Vec::new();
    if let Some(map) = map {
        // BPF_LD | BPF_IMM | BPF_DW, to r1, from a map's descriptor (BPF_PSEUDO_MAP_FD); two slots.
        instructions.extend([0x1118 | (u64::from(map.cast_unsigned()) << 32), 0]);
    }
    instructions.extend([0x1_0000_00b7, 0x95]);
    let mut name = [0; 16];
    name[..hook.name().len()].copy_from_slice(hook.name().as_bytes());
    let attributes = Load {
        program_type: CGROUP_SOCK_ADDR,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: instructions.as_ptr(),
        license: c"GPL".as_ptr(),
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: hook.attach_type(),
    };
    // SAFETY: all addresses are of values that outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attributes, size_of::<Load>()) };
    let fd = RawFd::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(io::Error::last_os_error)?;
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pins an array of this many values, as large as those of META, at a path, in place of what is pinned there.
pub(crate) fn pin_array(path: &Path, entries: u32) {
    let array = Array::<MapData, [u8; size_of::<Meta>()]>::create(entries, 0).expect("an array");
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            panic!("failed to unpin {}: {error}", path.display())
        }
        _ => array.pin(path).expect("pinned"),
    }
}

/// Writes META of the pinned set.
pub(crate) fn overwrite_meta(node: &Node, meta: &Meta) {
    let map = MapData::from_pin(node.pins("maps/META")).expect("META is pinned");
    let mut array = Array::<_, [u8; 16]>::try_from(Map::Array(map)).expect("an array of 16 bytes");
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&meta.magic);
    bytes[8..12].copy_from_slice(&meta.abi.to_ne_bytes());
    bytes[12..].copy_from_slice(&meta.pad.to_ne_bytes());
    array.set(0, bytes, 0).expect("META is written");
}
