//! SERVICES, as memory: a service port is switched by one store of eight bytes.
//!
//! `bpf_map_update_elem` on an array copies the value with memcpy, which does not promise that a program on
//! another CPU sees all of it or nothing.

use std::{
    io,
    ops::Deref,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lb_abi::{Service, ServiceId};

use super::mmap_array::{Access, Memory};
use crate::{LoaderError, MapError, MapName, Operation};

const _: () = assert!(size_of::<Service>() == size_of::<u64>());

/// SERVICES to be read. An entry that is all zero is absent. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct ServiceView {
    memory: Arc<Memory>,
}

impl ServiceView {
    /// The map must have the layout of SERVICES.
    pub(crate) fn new(map: &OwnedFd) -> Result<Self, LoaderError> {
        Self::mapped(map, Access::Read)
    }

    fn mapped(map: &OwnedFd, access: Access) -> Result<Self, LoaderError> {
        Memory::map(MapName::Services, map, access).map(|memory| Self {
            memory: Arc::new(memory),
        })
    }

    /// The word of a service port; `None`: there is no such number.
    fn word(&self, id: ServiceId) -> Option<&AtomicU64> {
        self.memory.words().get(usize::try_from(id).ok()?)
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
            .zip(self.memory.words())
            .map(|(id, word)| (id, word.load(Ordering::Acquire)))
            .filter(|(_, word)| *word != 0)
            .map(|(id, word)| (id, Service::from_word(word)))
            .collect())
    }
}

/// SERVICES to be read and written.
#[derive(Debug)]
pub struct ServiceTable(ServiceView);

impl ServiceTable {
    /// As [`ServiceView::new`].
    pub(crate) fn new(map: &OwnedFd) -> Result<Self, LoaderError> {
        ServiceView::mapped(map, Access::ReadWrite).map(Self)
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

    /// The same map, to be read.
    pub fn view(&self) -> ServiceView {
        self.0.clone()
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
