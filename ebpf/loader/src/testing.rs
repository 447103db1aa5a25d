//! Maps and programs as of other projects, made by hand: for tests of what must tell them apart, and for the faults of the
//! suite; and frames at devices, with what is said beside them. Behind the feature `testing`; the agent makes none.
//!
//! `misleading`: a program of XDP that sends datagrams elsewhere; `wire`: frames at a device.

mod misleading;
mod wire;

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
    ptr,
};

pub use self::{
    misleading::load_misleading,
    wire::{Offload, PacketSocket, Wired},
};
use crate::{
    HeldProgram, Hook, LoaderError,
    raw_map::bytes_of_value,
    sys::{
        self,
        map::{ARRAY, Description, HASH, LPM_TRIE, Layout, NO_PREALLOC, PROG_ARRAY},
        test_objects,
    },
};

/// Types of maps that can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CraftedKind {
    /// `BPF_MAP_TYPE_ARRAY`.
    Array,
    /// `BPF_MAP_TYPE_HASH`.
    Hash,
    /// `BPF_MAP_TYPE_LPM_TRIE`.
    Trie,
    /// `BPF_MAP_TYPE_PROG_ARRAY`: filled by [`CraftedMap::put_program`].
    ProgArray,
}

/// By how much a map differs from the one that it is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Geometry {
    /// So many more bytes of key.
    pub key: u32,
    /// So many more bytes of value.
    pub value: u32,
    /// So many more entries.
    pub entries: u32,
}

/// A map of any name and form; gone when nothing holds it any more.
#[derive(Debug)]
pub struct CraftedMap {
    fd: OwnedFd,
    description: Description,
    /// Bytes that the kernel reads of one value.
    value: usize,
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
            CraftedKind::Array => (ARRAY, 0),
            CraftedKind::Hash => (HASH, 0),
            CraftedKind::Trie => (LPM_TRIE, NO_PREALLOC),
            CraftedKind::ProgArray => (PROG_ARRAY, 0),
        };
        let layout = Layout {
            map_type,
            key_size,
            value_size,
            max_entries,
            flags,
        };
        Self::make(name, layout)
    }

    /// Makes one that has the name, the type and the flags of another, and the same sizes, or larger ones. It is empty.
    ///
    /// # Errors
    /// There is no such map; some types of maps are not made with larger keys or values.
    pub fn like(id: u32, larger: Geometry) -> Result<Self, LoaderError> {
        let failed = || LoaderError::kernel(format!("look at map {id}"));
        let found = sys::map::open(id, sys::READ_ONLY).map_err(failed())?;
        let found = sys::map::describe(found.as_fd()).map_err(failed())?;
        let layout = Layout {
            key_size: found.layout.key_size + larger.key,
            value_size: found.layout.value_size + larger.value,
            max_entries: found.layout.max_entries + larger.entries,
            ..found.layout
        };
        Self::make(&found.name, layout)
    }

    fn make(name: &str, layout: Layout) -> Result<Self, LoaderError> {
        let failed = || LoaderError::kernel(format!("make a map {name}"));
        let fd = test_objects::create_map(name, layout).map_err(failed())?;
        let description = sys::map::describe(fd.as_fd()).map_err(failed())?;
        let value = bytes_of_value(description.layout)?;
        Ok(Self {
            fd,
            description,
            value,
        })
    }

    /// The name that the kernel keeps.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Its type and sizes.
    pub const fn layout(&self) -> Layout {
        self.description.layout
    }

    /// How many bytes [`put`](Self::put) takes as a value.
    pub const fn bytes_of_value(&self) -> usize {
        self.value
    }

    /// Its id.
    pub const fn id(&self) -> u32 {
        self.description.id
    }

    /// Puts an entry; the value as [`RawMap::get`](crate::RawMap::get) returns it.
    ///
    /// # Errors
    /// What the kernel said.
    ///
    /// # Panics
    /// Key or value have another size than the map's.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), LoaderError> {
        assert!(
            usize::try_from(self.description.layout.key_size) == Ok(key.len()) && value.len() == self.value,
            "{} takes keys of {} bytes and values of {}",
            self.description.name,
            self.description.layout.key_size,
            self.value
        );
        // SAFETY: the sizes were compared with the map's.
        unsafe { sys::map::update(self.fd.as_fd(), key.as_ptr(), value.as_ptr()) }
            .map_err(LoaderError::kernel(format!("write map {}", self.id())))
    }

    /// Puts a program into an array of programs.
    ///
    /// # Errors
    /// What the kernel said: EINVAL for a program of another type than those that use the array.
    ///
    /// # Panics
    /// It is no array of programs.
    pub fn put_program(&self, index: u32, program: &HeldProgram) -> Result<(), LoaderError> {
        let descriptor = program.as_fd().as_raw_fd();
        self.put(&index.to_ne_bytes(), &descriptor.to_ne_bytes())
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

/// Where a program made by hand can be attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CraftedHook {
    /// A hook of cgroups.
    Socket(Hook),
    /// A network device, by TCX or as a filter.
    Device,
    /// XDP of a network device.
    Xdp,
}

impl From<Hook> for CraftedHook {
    fn from(hook: Hook) -> Self {
        Self::Socket(hook)
    }
}

impl CraftedHook {
    /// `enum bpf_prog_type` of `linux/bpf.h`, and the attach type that it is loaded for.
    const fn types(self) -> (u32, u32) {
        const SCHED_CLS: u32 = 3;
        const XDP: u32 = 6;
        const CGROUP_SOCK: u32 = 9;
        const CGROUP_SOCK_ADDR: u32 = 18;
        match self {
            Self::Socket(hook @ (Hook::PostBind4 | Hook::PostBind6 | Hook::SockRelease)) => {
                (CGROUP_SOCK, hook.attach_type())
            }
            Self::Socket(hook) => (CGROUP_SOCK_ADDR, hook.attach_type()),
            Self::Device => (SCHED_CLS, 0),
            Self::Xdp => (XDP, 0),
        }
    }

    /// What a program returns that lets everything pass, to those after it too: 1, `TC_ACT_UNSPEC`, `XDP_PASS`.
    const fn pass(self) -> i32 {
        match self {
            Self::Socket(_) => 1,
            Self::Device => -1,
            Self::Xdp => 2,
        }
    }
}

/// An instruction as the kernel has it: code, the two registers, offset, immediate.
pub const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    code as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset.cast_unsigned() as u64) << 16
        | (immediate.cast_unsigned() as u64) << 32
}

/// Loads a program that lets everything pass, and uses these maps, by their ids: their owner is its owner. It adds 1 to
/// the first value of `counter`, an array whose values have 8 bytes, each time it runs.
///
/// # Errors
/// What the kernel said.
pub fn load_passing(
    name: &str,
    hook: impl Into<CraftedHook>,
    maps: &[u32],
    counter: Option<&CraftedMap>,
) -> Result<HeldProgram, LoaderError> {
    let hook = hook.into();
    let mut held = Vec::new();
    let mut instructions = Vec::new();
    for map in maps {
        let fd = sys::map::open(*map, 0).map_err(LoaderError::kernel(format!("open map {map}")))?;
        instructions.extend(load_map(fd.as_fd(), 1));
        held.push(fd);
    }
    if let Some(counter) = counter {
        instructions.extend(counter.load_into(1));
        instructions.extend(COUNT);
    }
    // r0 = …; exit
    instructions.extend([instruction(0xb7, 0, 0, 0, hook.pass()), 0x95]);
    load_crafted(name, hook, &instructions)
}

/// Loads a program that goes on as the program in the first entry of the first array that has one there (a tail call), and
/// else lets everything pass.
///
/// # Errors
/// What the kernel said.
pub fn load_tail_calling(
    name: &str,
    hook: impl Into<CraftedHook>,
    arrays: &[&CraftedMap],
) -> Result<HeldProgram, LoaderError> {
    let hook = hook.into();
    // r6 = the context
    let mut instructions = vec![instruction(0xbf, 6, 1, 0, 0)];
    for array in arrays {
        instructions.push(instruction(0xbf, 1, 6, 0, 0));
        instructions.extend(array.load_into(2));
        // r3 = 0; bpf_tail_call(r1, r2, r3), which comes back only where it leads nowhere
        instructions.extend([instruction(0xb7, 3, 0, 0, 0), instruction(0x85, 0, 0, 0, 12)]);
    }
    // r0 = …; exit
    instructions.extend([instruction(0xb7, 0, 0, 0, hook.pass()), 0x95]);
    load_crafted(name, hook, &instructions)
}

/// Adds 1, atomically, to the first value of the array in r1.
const COUNT: [u64; 7] = [
    instruction(0x62, 10, 0, -4, 0), // *(u32 *)(r10 - 4) = 0
    instruction(0xbf, 2, 10, 0, 0),  // r2 = r10
    instruction(0x07, 2, 0, 0, -4),  // r2 -= 4
    instruction(0x85, 0, 0, 0, 1),   // r0 = bpf_map_lookup_elem(r1, r2)
    instruction(0x15, 0, 0, 2, 0),   // if r0 == 0, after all of this
    instruction(0xb7, 1, 0, 0, 1),   // r1 = 1
    instruction(0xdb, 0, 1, 0, 0),   // lock *(u64 *)r0 += r1
];

/// Loads a program from instructions as the kernel has them.
///
/// # Errors
/// What the kernel said, above all that the verifier does not like it.
pub fn load_crafted(
    name: &str,
    hook: impl Into<CraftedHook>,
    instructions: &[u64],
) -> Result<HeldProgram, LoaderError> {
    let (program_type, attach_type) = hook.into().types();
    let program = test_objects::load(name, program_type, attach_type, instructions)
        .map_err(LoaderError::kernel(format!("load a program {name}")))?;
    HeldProgram::new(program)
}

/// Attaches a program to XDP of a device, by its index, by a link without a pin.
///
/// # Errors
/// What the kernel said.
pub fn attach_xdp_link(device: u32, program: &HeldProgram) -> Result<OwnedFd, LoaderError> {
    test_objects::link_xdp(device, program.as_fd()).map_err(LoaderError::kernel(format!(
        "attach program {} to xdp of device {device} by a link",
        program.id()
    )))
}

/// Puts an entry into the map that is pinned at a path.
///
/// # Errors
/// Nothing is pinned there, or the kernel refuses the entry.
///
/// # Panics
/// Key or value have another size than the map's.
pub fn put_pinned(path: &Path, key: &[u8], value: &[u8]) -> Result<(), LoaderError> {
    let failed = || LoaderError::path("write the map that is pinned at", path);
    let fd = sys::open_pinned(path, 0).map_err(failed())?;
    let description = sys::map::describe(fd.as_fd()).map_err(failed())?;
    let size = bytes_of_value(description.layout)?;
    CraftedMap {
        fd,
        description,
        value: size,
    }
    .put(key, value)
}

/// Removes the keys of a map that is pinned at a path, as many as it has room for: of one that is written meanwhile, some stay.
///
/// # Errors
/// Nothing is pinned there, or it is no map whose keys can be removed.
pub fn empty_map(path: &Path) -> Result<(), LoaderError> {
    let failed = || LoaderError::path("empty the map that is pinned at", path);
    let fd = sys::open_pinned(path, 0).map_err(failed())?;
    empty(&fd).map(drop).map_err(failed())
}

/// As [`empty_map`], of a map by its id. Returns how many keys were removed.
///
/// # Errors
/// There is no such map, or none whose keys can be removed.
pub fn empty_map_by_id(id: u32) -> Result<usize, LoaderError> {
    let failed = || LoaderError::kernel(format!("empty map {id}"));
    let fd = sys::map::open(id, 0).map_err(failed())?;
    empty(&fd).map_err(failed())
}

/// Fills the values of a map with zeros, by its id. Returns how many had another value before: 0 if the map is frozen
/// (`BPF_MAP_FREEZE`).
///
/// # Errors
/// There is no such map, or its values can't be written for another reason.
pub fn zero_map_by_id(id: u32) -> Result<usize, LoaderError> {
    let failed = || LoaderError::kernel(format!("overwrite map {id}"));
    let fd = sys::map::open(id, 0).map_err(failed())?;
    let layout = sys::map::describe(fd.as_fd()).map_err(failed())?.layout;
    let zeros = vec![0_u8; bytes_of_value(layout)?];
    let mut value = zeros.clone();
    let mut key = vec![0_u8; usize::try_from(layout.key_size).unwrap_or(usize::MAX)];
    let mut before = None;
    let mut changed = 0;
    for _ in 0..layout.max_entries {
        let from = before.as_ref().map_or(ptr::null(), Vec::as_ptr);
        // SAFETY: no key or one of the map's size, and room for one.
        if !unsafe { sys::map::next_key(fd.as_fd(), from, key.as_mut_ptr()) }.map_err(failed())? {
            break;
        }
        // SAFETY: a key of the map's size, and room for a value.
        let found = unsafe { sys::map::lookup(fd.as_fd(), key.as_ptr(), value.as_mut_ptr()) };
        if found.map_err(failed())? && value != zeros {
            // SAFETY: key and value have the map's sizes.
            match unsafe { sys::map::replace(fd.as_fd(), key.as_ptr(), zeros.as_ptr()) } {
                Ok(is_there) => changed += usize::from(is_there),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(0),
                Err(error) => return Err(failed()(error)),
            }
        }
        before = Some(key.clone());
    }
    Ok(changed)
}

/// Puts entries with zeros under keys of no meaning into a hash map, by its id, until it has room for no more. Returns how many, 0 of
/// one that was full; `None`: it is of another type, or frozen (`BPF_MAP_FREEZE`).
///
/// # Errors
/// There is no such map, or it can't be written for another reason.
pub fn fill_map_by_id(id: u32) -> Result<Option<usize>, LoaderError> {
    /// `BPF_MAP_TYPE_HASH`.
    const HASH: u32 = 1;
    /// Odd, so that multiplication gives each number another key: 2⁶⁴ divided by the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let failed = || LoaderError::kernel(format!("fill map {id}"));
    let fd = sys::map::open(id, 0).map_err(failed())?;
    let layout = sys::map::describe(fd.as_fd()).map_err(failed())?.layout;
    if layout.map_type != HASH {
        return Ok(None);
    }
    let zeros = vec![0_u8; bytes_of_value(layout)?];
    let mut key = vec![0_u8; usize::try_from(layout.key_size).unwrap_or(usize::MAX)];
    let mut value = zeros.clone();
    let mut put = 0;
    // Some keys may be there, of short ones.
    for number in 1..=u64::from(layout.max_entries) * 2 {
        let bytes = number.wrapping_mul(SPREAD).to_be_bytes();
        key.iter_mut()
            .zip(bytes.iter().cycle())
            .for_each(|(to, from)| *to = *from);
        // SAFETY: a key of the map's size, and room for a value.
        if unsafe { sys::map::lookup(fd.as_fd(), key.as_ptr(), value.as_mut_ptr()) }.map_err(failed())? {
            continue;
        }
        // SAFETY: key and value have the map's sizes.
        match unsafe { sys::map::update(fd.as_fd(), key.as_ptr(), zeros.as_ptr()) } {
            Ok(()) => put += 1,
            Err(error) if error.raw_os_error() == Some(libc::E2BIG) => break,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(Some(put))
}

fn empty(fd: &OwnedFd) -> io::Result<usize> {
    let layout = sys::map::describe(fd.as_fd())?.layout;
    let mut key = vec![0_u8; usize::try_from(layout.key_size).unwrap_or(usize::MAX)];
    let mut removed = 0;
    for _ in 0..layout.max_entries {
        // SAFETY: no key, and room for one.
        if !unsafe { sys::map::next_key(fd.as_fd(), ptr::null::<u8>(), key.as_mut_ptr()) }? {
            break;
        }
        // SAFETY: a key of the map's size.
        removed += usize::from(unsafe { sys::map::delete(fd.as_fd(), key.as_ptr()) }?);
    }
    Ok(removed)
}
