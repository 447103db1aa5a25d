//! Maps and programs of somebody else's, made by hand: for tests of what must tell them apart. Behind the feature
//! `testing`, and in no program that ships.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use crate::{
    HeldProgram, LoaderError, MapDescription,
    inventory::describe_map,
    sys::{
        self, crafted,
        map::{HASH, LPM_TRIE, Layout, NO_PREALLOC},
    },
};

/// Types of maps that can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CraftedKind {
    /// `BPF_MAP_TYPE_HASH`.
    Hash,
    /// `BPF_MAP_TYPE_LPM_TRIE`.
    Trie,
}

/// A map of any name and form; gone when nothing holds it any more.
#[derive(Debug)]
pub struct CraftedMap {
    fd: OwnedFd,
    description: MapDescription,
}

impl CraftedMap {
    /// Makes one; of a name that is longer the kernel is given the first 15 bytes, as loaders do.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn create(
        name: &str,
        kind: CraftedKind,
        (key_size, value_size): (u32, u32),
        max_entries: u32,
    ) -> Result<Self, LoaderError> {
        let (map_type, flags) = match kind {
            CraftedKind::Hash => (HASH, 0),
            CraftedKind::Trie => (LPM_TRIE, NO_PREALLOC),
        };
        let layout = Layout {
            map_type,
            key_size,
            value_size,
            max_entries,
            flags,
        };
        let failed = || LoaderError::kernel(format!("make a map {name}"));
        let fd = crafted::create_map(name, layout).map_err(failed())?;
        let id = sys::map::describe(fd.as_fd()).map_err(failed())?.id;
        let description = describe_map(id, fd.as_fd()).map_err(failed())?;
        Ok(Self { fd, description })
    }

    /// Its id.
    pub const fn id(&self) -> u32 {
        self.description.id
    }

    /// Puts an entry.
    ///
    /// # Errors
    /// What the kernel said.
    ///
    /// # Panics
    /// Key or value have another size than the map's.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), LoaderError> {
        let is = |bytes: &[u8], size: u32| usize::try_from(size) == Ok(bytes.len());
        assert!(
            is(key, self.description.key_size) && is(value, self.description.value_size),
            "{} takes keys of {} bytes and values of {}",
            self.description.name,
            self.description.key_size,
            self.description.value_size
        );
        // SAFETY: the sizes were compared with the map's.
        unsafe { sys::map::update(self.fd.as_fd(), key.as_ptr(), value.as_ptr()) }
            .map_err(LoaderError::kernel(format!("write map {}", self.id())))
    }

    /// Pins it.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn pin(&self, path: &Path) -> Result<(), LoaderError> {
        sys::pin(self.fd.as_fd(), path)
            .map_err(LoaderError::kernel(format!("pin a map at {}", path.display())))
    }

    /// The two instructions that put it into a register.
    pub fn load_into(&self, register: u8) -> [u64; 2] {
        load_map(self.fd.as_fd(), register)
    }
}

/// `BPF_LD | BPF_IMM | BPF_DW` with `BPF_PSEUDO_MAP_FD`.
fn load_map(map: BorrowedFd<'_>, register: u8) -> [u64; 2] {
    let descriptor = u64::from(map.as_raw_fd().cast_unsigned());
    [0x18 | u64::from(register) << 8 | 1 << 12 | descriptor << 32, 0]
}

/// Loads a program for XDP that lets every packet pass, and uses these maps, so that it is of whoever they are of.
///
/// # Errors
/// What the kernel said.
pub fn load_passing_xdp(name: &str, maps: &[u32]) -> Result<HeldProgram, LoaderError> {
    /// `BPF_PROG_TYPE_XDP`, which has no attach type.
    const XDP: u32 = 6;
    /// `XDP_PASS`.
    const PASS: u64 = 2;
    let mut held = Vec::new();
    let mut instructions = Vec::new();
    for map in maps {
        let fd = sys::map::open(*map, 0).map_err(LoaderError::kernel(format!("open map {map}")))?;
        instructions.extend(load_map(fd.as_fd(), 1));
        held.push(fd);
    }
    // r0 = PASS; exit
    instructions.extend([0xb7 | PASS << 32, 0x95]);
    let program = crafted::load(name, XDP, 0, &instructions)
        .map_err(LoaderError::kernel(format!("load a program {name}")))?;
    HeldProgram::new(program)
}

/// Loads a program for a hook of cgroups, from instructions as the kernel has them: `code | registers << 8 |
/// offset << 16 | immediate << 32`.
///
/// # Errors
/// What the kernel said, above all that the verifier does not like it.
pub fn load_crafted(name: &str, hook: crate::Hook, instructions: &[u64]) -> Result<HeldProgram, LoaderError> {
    /// `BPF_PROG_TYPE_CGROUP_SOCK_ADDR`.
    const SOCK_ADDR: u32 = 18;
    let program = crafted::load(name, SOCK_ADDR, hook.attach_type(), instructions)
        .map_err(LoaderError::kernel(format!("load a program {name}")))?;
    HeldProgram::new(program)
}
