//! Arrays as memory: words of eight bytes, of which each is read and written whole.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::AtomicU64,
};

use crate::{LoaderError, MapName};

/// The elements of an array with BPF_F_MMAPABLE.
#[derive(Debug)]
pub(crate) struct Memory {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are shared memory, accessed by atomic operations only; the mapping is not tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// What a mapping is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

impl Memory {
    /// The map must have the layout of its name, and values of a whole number of words.
    pub(crate) fn map(name: MapName, map: &OwnedFd, access: Access) -> Result<Self, LoaderError> {
        let failed = |source| LoaderError::kernel(format!("map {name} into memory"))(source);
        let layout = name.layout();
        let words = u64::from(layout.max_entries) * u64::from(layout.value_size) / size_of::<u64>() as u64;
        let count = usize::try_from(words).map_err(|error| failed(io::Error::other(error)))?;
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let (bytes, fd) = (count * size_of::<u64>(), map.as_fd().as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        NonNull::new(address.cast())
            .map(|words| Self { words, count })
            .ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
    }

    /// All words, in the order of the elements. Only of a mapping for [`Access::ReadWrite`] may they be written.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is of `count` words, page aligned, and lives as long as `self`. Kernel and other
        // processes access it by whole words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<u64>();
        // SAFETY: the mapping that `map` made; nothing borrowed from it outlives `self`. It can fail only for
        // arguments that are no mapping.
        unsafe { libc::munmap(self.words.as_ptr().cast(), bytes) };
    }
}
