//! Many entries of a map in one call (`BPF_MAP_UPDATE_BATCH`, `BPF_MAP_DELETE_BATCH`, since Linux 5.6).
//!
//! The kernel goes through the entries in their order and stops at the first that fails; it says how many it did.

use std::{io, os::fd::BorrowedFd};

use super::{address, bpf, raw};

const UPDATE_BATCH: i32 = 26;
const DELETE_BATCH: i32 = 27;

/// Entries for one call: a third of a millisecond or so.
const MOST: usize = 1024;

/// What commands on many entries take.
#[repr(C)]
pub(super) struct Batch {
    pub(super) from: u64,
    pub(super) next: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    pub(super) map: u32,
    pub(super) element_flags: u64,
    pub(super) flags: u64,
}

/// Inserts or replaces. An error comes with the number of entries done before it.
///
/// # Safety
/// Keys and values have the map's sizes and no padding; there are as many of the one as of the other.
pub(crate) unsafe fn update_all<K, V>(
    map: BorrowedFd<'_>,
    keys: &[K],
    values: &[V],
) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    for (keys, values) in keys.chunks(MOST).zip(values.chunks(MOST)) {
        // SAFETY: the caller's promise.
        let (count, result) = unsafe { call(UPDATE_BATCH, map, keys, address(values.as_ptr())) };
        done += count;
        result.map_err(|error| (done, error))?;
    }
    Ok(())
}

/// Removes; what is absent is passed over. An error comes with the number of keys that were gone before it.
///
/// # Safety
/// Keys have the map's size and no padding.
pub(crate) unsafe fn delete_all<K>(map: BorrowedFd<'_>, keys: &[K]) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < keys.len() {
        let rest = &keys[done..keys.len().min(done + MOST)];
        // SAFETY: the caller's promise; no values.
        let (count, result) = unsafe { call(DELETE_BATCH, map, rest, 0) };
        done += count;
        match result {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => done += 1,
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

/// One call, and how many entries it did.
///
/// # Safety
/// The command takes keys of this type, and as many values at this address, if any.
unsafe fn call<K>(command: i32, map: BorrowedFd<'_>, keys: &[K], values: u64) -> (usize, io::Result<()>) {
    let mut batch = Batch {
        from: 0,
        next: 0,
        keys: address(keys.as_ptr()),
        values,
        count: u32::try_from(keys.len()).unwrap_or(u32::MAX),
        map: raw(map),
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: `count` keys and values can be read.
    match unsafe { bpf(command, &mut batch) } {
        Ok(_) => (keys.len(), Ok(())),
        Err(error) => {
            // The kernel writes the number also with an error of an entry; of one that came before any was looked at
            // (EPERM, EFAULT …) it leaves the number that it was asked for.
            let done = usize::try_from(batch.count).unwrap_or(0);
            (if done < keys.len() { done } else { 0 }, Err(error))
        }
    }
}
