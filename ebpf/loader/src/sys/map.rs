//! Maps by descriptor, in bytes.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    ptr,
};

use super::{address, batch::Batch, bpf, bpf_fd, by_id, ids, info, raw};

/// `BPF_MAP_TYPE_HASH`.
pub(crate) const HASH: u32 = 1;
/// `BPF_MAP_TYPE_ARRAY`.
pub(crate) const ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_PROG_ARRAY`.
#[cfg(feature = "testing")]
pub(crate) const PROG_ARRAY: u32 = 3;
/// `BPF_MAP_TYPE_PERCPU_HASH`.
pub(crate) const PERCPU_HASH: u32 = 5;
/// `BPF_MAP_TYPE_PERCPU_ARRAY`.
pub(crate) const PERCPU_ARRAY: u32 = 6;
/// `BPF_MAP_TYPE_LRU_HASH`.
pub(crate) const LRU_HASH: u32 = 9;
/// `BPF_MAP_TYPE_LRU_PERCPU_HASH`.
pub(crate) const LRU_PERCPU_HASH: u32 = 10;
/// `BPF_MAP_TYPE_LPM_TRIE`.
pub(crate) const LPM_TRIE: u32 = 11;
/// `BPF_MAP_TYPE_ARRAY_OF_MAPS`.
pub(crate) const ARRAY_OF_MAPS: u32 = 12;
/// `BPF_F_NO_PREALLOC`, without which the kernel makes no trie.
pub(crate) const NO_PREALLOC: u32 = 1;
/// `BPF_F_MMAPABLE`.
pub(crate) const MMAPABLE: u32 = 1 << 10;

const CREATE: i32 = 0;
const LOOKUP: i32 = 1;
const UPDATE: i32 = 2;
const DELETE: i32 = 3;
const NEXT_KEY: i32 = 4;
const GET_NEXT_ID: i32 = 12;
const GET_FD_BY_ID: i32 = 14;
const LOOKUP_BATCH: i32 = 24;

/// What makes two maps interchangeable for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// `enum bpf_map_type` of `linux/bpf.h`.
    pub map_type: u32,
    /// In bytes.
    pub key_size: u32,
    /// In bytes; of a map for each processor, one of them.
    pub value_size: u32,
    /// Most entries.
    pub max_entries: u32,
    /// `BPF_F_…` of `linux/bpf.h`.
    pub flags: u32,
}

/// What the kernel tells of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// Its id; not given again while the map is there.
    pub id: u32,
    /// Its type and sizes.
    pub layout: Layout,
    /// At most 15 bytes, chosen by its creator, not unique: for people only.
    pub name: String,
}

/// Describes an open map.
pub(crate) fn describe(map: BorrowedFd<'_>) -> io::Result<Description> {
    #[repr(C)]
    #[derive(Default)]
    struct MapInfo {
        map_type: u32,
        id: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
        name: [u8; 16],
    }
    let mut found = MapInfo::default();
    // SAFETY: the beginning of bpf_map_info, integers only. Of what is no map the kernel fills in something else,
    // which is a layout that no map of ours has.
    unsafe { info(map, &mut found) }?;
    let MapInfo {
        map_type,
        id,
        key_size,
        value_size,
        max_entries,
        flags,
        name,
    } = found;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Description {
        id,
        layout: Layout {
            map_type,
            key_size,
            value_size,
            max_entries,
            flags,
        },
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

/// Creates a map; `inner` for a map of maps.
pub(crate) fn create(layout: Layout, inner: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
        inner: u32,
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
        inner: inner.map_or(0, raw),
    };
    // SAFETY: no addresses; returns a new descriptor.
    unsafe { bpf_fd(CREATE, &mut attributes) }
}

/// Ids of all maps on this machine, rising.
pub(crate) fn all() -> impl Iterator<Item = io::Result<u32>> {
    ids(GET_NEXT_ID)
}

/// Opens a map by id; `flags`: 0 or [`READ_ONLY`](super::READ_ONLY).
pub(crate) fn open(id: u32, flags: u32) -> io::Result<OwnedFd> {
    by_id(GET_FD_BY_ID, id, flags)
}

#[repr(C)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The key after another, or the first; `false`: there is none.
///
/// # Safety
/// Both are of the map's key size: the one valid to be read, or null; the other to be written.
pub(crate) unsafe fn next_key<K: ?Sized>(
    map: BorrowedFd<'_>,
    after: *const u8,
    next: *mut K,
) -> io::Result<bool> {
    let mut element = Element {
        map: raw(map),
        pad: 0,
        key: address(after),
        value: address(next),
        flags: 0,
    };
    // SAFETY: the caller's promise.
    absent_is_false(unsafe { bpf(NEXT_KEY, &mut element) })
}

/// Copies a value out; `false`: no such key.
///
/// # Safety
/// The key is valid to be read for the map's key size, the value to be written for its value size; for a per-CPU
/// map, that size rounded up to 8, for each possible CPU.
pub(crate) unsafe fn lookup<K, V: ?Sized>(
    map: BorrowedFd<'_>,
    key: *const K,
    value: *mut V,
) -> io::Result<bool> {
    let mut element = Element {
        map: raw(map),
        pad: 0,
        key: address(key),
        value: address(value),
        flags: 0,
    };
    // SAFETY: the caller's promise.
    absent_is_false(unsafe { bpf(LOOKUP, &mut element) })
}

/// Inserts or replaces.
///
/// # Safety
/// Key and value are valid to be read for the map's sizes.
pub(crate) unsafe fn update<K, V>(map: BorrowedFd<'_>, key: *const K, value: *const V) -> io::Result<()> {
    let mut element = Element {
        map: raw(map),
        pad: 0,
        key: address(key),
        value: address(value),
        flags: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { bpf(UPDATE, &mut element) }.map(drop)
}

/// Replaces (`BPF_EXIST`); `false`: no such key.
///
/// # Safety
/// As [`update`].
pub(crate) unsafe fn replace<K, V>(map: BorrowedFd<'_>, key: *const K, value: *const V) -> io::Result<bool> {
    const EXIST: u64 = 2;
    let mut element = Element {
        map: raw(map),
        pad: 0,
        key: address(key),
        value: address(value),
        flags: EXIST,
    };
    // SAFETY: the caller's promise.
    absent_is_false(unsafe { bpf(UPDATE, &mut element) })
}

/// Removes; `false`: no such key.
///
/// # Safety
/// The key is valid to be read for the map's key size.
pub(crate) unsafe fn delete<K>(map: BorrowedFd<'_>, key: *const K) -> io::Result<bool> {
    let mut element = Element {
        map: raw(map),
        pad: 0,
        key: address(key),
        value: 0,
        flags: 0,
    };
    // SAFETY: the caller's promise.
    absent_is_false(unsafe { bpf(DELETE, &mut element) })
}

fn absent_is_false(result: io::Result<i32>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a hash map bucket by bucket, and gives `each` some thousand entries at a time: what is there all the while is
/// read exactly once, whatever is inserted or deleted meanwhile, which `BPF_MAP_GET_NEXT_KEY` does not promise.
///
/// # Safety
/// `K` and `V` are of the map's sizes and valid for any bytes.
pub(crate) unsafe fn chunks<K: Copy, V: Copy>(
    map: BorrowedFd<'_>,
    mut each: impl FnMut(&[K], &[V]) -> io::Result<()>,
) -> io::Result<()> {
    /// A bucket must fit in whole, or the kernel says ENOSPC; buckets hold few entries.
    const CHUNK: usize = 4096;
    let mut keys: Vec<K> = Vec::with_capacity(CHUNK);
    let mut values: Vec<V> = Vec::with_capacity(CHUNK);
    // Of hash maps the kernel writes a bucket's number, 4 bytes.
    let (mut from, mut next) = (0_u32, 0_u32);
    let mut first = true;
    loop {
        let mut batch = Batch {
            from: if first { 0 } else { address(&raw const from) },
            next: address(&raw mut next),
            keys: address(keys.as_mut_ptr()),
            values: address(values.as_mut_ptr()),
            count: u32::try_from(CHUNK).unwrap_or(u32::MAX),
            map: raw(map),
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: there is room for `count` keys and values, and for both bucket numbers.
        let more = absent_is_false(unsafe { bpf(LOOKUP_BATCH, &mut batch) })?;
        let read = usize::try_from(batch.count).unwrap_or(CHUNK).min(CHUNK);
        // SAFETY: the kernel has written that many of each, and says so also with the last, which ends in ENOENT.
        unsafe {
            keys.set_len(read);
            values.set_len(read);
        }
        each(&keys, &values)?;
        if !more {
            return Ok(());
        }
        (from, first) = (next, false);
    }
}

/// Reads a map key by key, at most twice as many entries as it can have: where the key that was read last is removed,
/// the kernel begins anew.
///
/// # Safety
/// `K` and `V` are of the map's sizes and valid for any bytes.
pub(crate) unsafe fn entries_one_by_one<K: Copy, V: Copy>(
    map: BorrowedFd<'_>,
    capacity: u32,
    entries: &mut Vec<(K, V)>,
) -> io::Result<()> {
    let mut last: Option<K> = None;
    for _ in 0..u64::from(capacity) * 2 {
        let mut next = MaybeUninit::<K>::uninit();
        let after = last.as_ref().map_or(ptr::null(), |key| ptr::from_ref(key).cast());
        // SAFETY: a key or none, and room for one.
        if !unsafe { next_key(map, after, next.as_mut_ptr()) }? {
            return Ok(());
        }
        // SAFETY: the kernel has written it; any bytes are a key.
        let key = unsafe { next.assume_init() };
        let mut value = MaybeUninit::<V>::uninit();
        // SAFETY: the caller's promise.
        if unsafe { lookup(map, &raw const key, value.as_mut_ptr()) }? {
            // SAFETY: found, and so written; any bytes are a value.
            entries.push((key, unsafe { value.assume_init() }));
        }
        last = Some(key);
    }
    Ok(())
}
