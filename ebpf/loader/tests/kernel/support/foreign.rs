//! Somebody else's programs and maps.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
    path::Path,
};

use aya::maps::{Array, Map, MapData};
use lb_abi::Meta;
use lb_loader::{HeldProgram, Hook};

use super::{
    Node,
    bytecode::{self, immediate},
};

/// A socket program of another project, with the name of ours: it lets everything pass.
pub(crate) struct ForeignProgram(pub(crate) HeldProgram);

impl ForeignProgram {
    /// That uses no map, or one.
    pub(crate) fn load(hook: Hook, map: Option<&MapData>) -> Self {
        let map = map.map(|map| map.fd().as_fd().as_raw_fd());
        let program = load(hook, map).expect("a program that only passes is accepted");
        Self(HeldProgram::by_id(id(&program)).expect("it is loaded"))
    }
}

impl ForeignProgram {
    /// A packet program of another project, with the name of ours, that uses no map: it leaves every packet to the
    /// programs after it.
    pub(crate) fn packet(name: &str) -> Self {
        const SCHED_CLS: u32 = 3;
        // r0 = TC_ACT_UNSPEC; exit
        let instructions = [0xb7 | immediate(-1), 0x95];
        let program = bytecode::load(name, SCHED_CLS, 0, &instructions)
            .expect("a program that only passes is accepted");
        Self(HeldProgram::by_id(id(&program)).expect("it is loaded"))
    }
}

/// A program of XDP that lets every packet pass; of ours, if the map is a META of ours, somebody else's without one.
pub(crate) fn xdp_program(map: Option<&MapData>) -> HeldProgram {
    const XDP: u32 = 6;
    const PASS: i32 = 2;
    let map = map.map(|map| map.fd().as_fd().as_raw_fd());
    let instructions = returning(map, PASS);
    let program =
        bytecode::load("xdp", XDP, 0, &instructions).expect("a program that only passes is accepted");
    HeldProgram::by_id(id(&program)).expect("it is loaded")
}

/// A program's id.
fn id(program: &OwnedFd) -> u32 {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    fs::read_to_string(&path)
        .expect("fdinfo of a program")
        .lines()
        .find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
        .expect("prog_id in fdinfo")
}

fn load(hook: Hook, map: Option<RawFd>) -> io::Result<OwnedFd> {
    const CGROUP_SOCK_ADDR: u32 = 18;
    bytecode::load(
        hook.name(),
        CGROUP_SOCK_ADDR,
        hook.attach_type(),
        &returning(map, 1),
    )
}

/// `r1 = map; r0 = value; exit`, or without the first.
fn returning(map: Option<RawFd>, value: i32) -> Vec<u64> {
    let mut instructions = Vec::new();
    if let Some(map) = map {
        // BPF_LD | BPF_IMM | BPF_DW, to r1, from a map's descriptor (BPF_PSEUDO_MAP_FD); two slots.
        instructions.extend([0x1118 | immediate(map), 0]);
    }
    instructions.extend([0xb7 | immediate(value), 0x95]);
    instructions
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
