//! SERVICES, as memory: a service port is switched by one store of eight bytes.
//!
//! `bpf_map_update_elem` on an array copies the value with memcpy, of which nobody promises that a program on
//! another CPU sees all of it or nothing.

use std::{
    io,
    ops::Deref,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use lb_abi::{Service, ServiceId};

use crate::{LoaderError, MapError, MapName, Operation};

const ENTRIES: usize = MapName::Services.capacity() as usize;
/// A whole number of pages for any page size that Linux has (at most 64 KiB).
const BYTES: usize = ENTRIES * size_of::<u64>();
const _: () = assert!(BYTES.is_multiple_of(64 * 1024) && size_of::<Service>() == size_of::<u64>());

/// SERVICES to be read. An entry that is all zero is absent.
#[derive(Debug)]
pub struct ServiceView {
    words: NonNull<AtomicU64>,
}

// SAFETY: the words are shared memory, accessed by atomic operations only; the mapping is not tied to a thread.
unsafe impl Send for ServiceView {}
// SAFETY: as above.
unsafe impl Sync for ServiceView {}

impl ServiceView {
    /// The map must have the layout of SERVICES.
    pub(crate) fn new(map: &OwnedFd) -> Result<Self, LoaderError> {
        Self::mapped(map, libc::PROT_READ)
    }

    fn mapped(map: &OwnedFd, protection: libc::c_int) -> Result<Self, LoaderError> {
        let fd = map.as_fd().as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(LoaderError::kernel("map SERVICES into memory")(
                io::Error::last_os_error(),
            ));
        }
        NonNull::new(address.cast())
            .map(|words| Self { words })
            .ok_or_else(|| LoaderError::kernel("map SERVICES into memory")(io::ErrorKind::InvalidData.into()))
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is of ENTRIES words, page aligned, and lives as long as `self`. Kernel and other
        // processes access it by whole words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), ENTRIES) }
    }

    /// The word of a service port; `None`: there is no such number.
    fn word(&self, id: ServiceId) -> Option<&AtomicU64> {
        self.words().get(usize::try_from(id).ok()?)
    }

    /// A service port.
    pub fn get(&self, id: &ServiceId) -> Result<Option<Service>, MapError> {
        Ok(self
            .word(*id)
            .map(|word| word.load(Ordering::Acquire))
            .filter(|word| *word != 0)
            .map(Service::from_word))
    }

    /// Every service port, in the order of the ids.
    pub fn entries(&self) -> Result<Vec<(ServiceId, Service)>, MapError> {
        Ok((0..)
            .zip(self.words())
            .map(|(id, word)| (id, word.load(Ordering::Acquire)))
            .filter(|(_, word)| *word != 0)
            .map(|(id, word)| (id, Service::from_word(word)))
            .collect())
    }
}

impl Drop for ServiceView {
    fn drop(&mut self) {
        // SAFETY: the mapping that `mapped` made; nothing borrowed from it outlives `self`. It can fail only for
        // arguments that are no mapping.
        unsafe { libc::munmap(self.words.as_ptr().cast(), BYTES) };
    }
}

/// SERVICES to be read and written.
#[derive(Debug)]
pub struct ServiceTable(ServiceView);

impl ServiceTable {
    /// As [`ServiceView::new`].
    pub(crate) fn new(map: &OwnedFd) -> Result<Self, LoaderError> {
        ServiceView::mapped(map, libc::PROT_READ | libc::PROT_WRITE).map(Self)
    }

    /// Switches a service port: one store of eight bytes, so that every program reads all of it or nothing.
    ///
    /// # Errors
    /// [`MapError::is_full`] for an id that is not below the map's capacity.
    pub fn put(&self, id: &ServiceId, value: &Service) -> Result<(), MapError> {
        let full = || MapError {
            map: MapName::Services,
            operation: Operation::Put,
            source: io::Error::from_raw_os_error(libc::E2BIG),
        };
        // Release: what was written before, such as the slots of the generation, is seen by who reads this.
        self.word(*id)
            .ok_or_else(full)?
            .store(value.to_word(), Ordering::Release);
        Ok(())
    }

    /// Zeroes a service port. `true`: it was there.
    pub fn delete(&self, id: &ServiceId) -> Result<bool, MapError> {
        Ok(self
            .word(*id)
            .is_some_and(|word| word.swap(0, Ordering::Release) != 0))
    }
}

impl Deref for ServiceTable {
    type Target = ServiceView;

    fn deref(&self) -> &ServiceView {
        &self.0
    }
}
