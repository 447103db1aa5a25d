//! Hash maps and the trie, typed.

use std::{
    io,
    marker::PhantomData,
    mem::MaybeUninit,
    ops::Deref,
    os::fd::{AsFd as _, OwnedFd},
};

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, Chosen, ChosenKey, Config, Flow, FragmentKey, Frontend,
    FrontendKey, Meta, Ports, Service, SlotKey, SocketRevnat, SocketRevnatKey, SourceKey, Tuple,
};

use crate::{
    MapError, MapName, Operation,
    sys::{batch, map as bpf},
};

/// Key or value of a map.
///
/// # Safety
/// There is no padding, and every bit pattern is a value.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: an integer, or a type of lb-abi: integers at offsets without holes, as its tests say.
        unsafe impl Plain for $type {}
    )*};
}
plain!(
    u32,
    u64,
    Address,
    Affinity,
    AffinityKey,
    Backend,
    Chosen,
    ChosenKey,
    Config,
    Flow,
    FragmentKey,
    Frontend,
    FrontendKey,
    Meta,
    Ports,
    SocketRevnat,
    SocketRevnatKey,
    Service,
    SlotKey,
    SourceKey,
    Tuple
);

/// A map to be read.
#[derive(Debug)]
pub struct View<K, V> {
    name: MapName,
    fd: OwnedFd,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> View<K, V> {
    /// The map must have the layout of its name, which has these types.
    pub(crate) const fn new(name: MapName, fd: OwnedFd) -> Self {
        Self {
            name,
            fd,
            types: PhantomData,
        }
    }

    /// Which map it is.
    pub const fn name(&self) -> MapName {
        self.name
    }

    fn failed(&self, operation: Operation) -> impl FnOnce(io::Error) -> MapError {
        let map = self.name;
        move |source| MapError {
            map,
            operation,
            source,
        }
    }
}

impl<K: Plain, V: Plain> View<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Result<Option<V>, MapError> {
        let mut value = MaybeUninit::<V>::uninit();
        // SAFETY: the types have the map's sizes.
        let found = unsafe { bpf::lookup(self.fd.as_fd(), key, value.as_mut_ptr()) }
            .map_err(self.failed(Operation::Get))?;
        // SAFETY: found, and so written; every bit pattern is a value.
        Ok(found.then(|| unsafe { value.assume_init() }))
    }

    /// Every entry, in the order of the keys. Entries that are there all the while are read once each, whatever
    /// is written meanwhile; of SOURCES, only if nothing is removed meanwhile.
    pub fn entries(&self) -> Result<Vec<(K, V)>, MapError>
    where
        K: Ord,
    {
        let mut entries = Vec::new();
        match self.name.layout().map_type {
            bpf::LPM_TRIE => {
                // SAFETY: the types have the map's sizes, and every bit pattern is a value.
                unsafe { bpf::entries_one_by_one(self.fd.as_fd(), self.name.capacity(), &mut entries) }
                    .map_err(self.failed(Operation::List))?;
            }
            _ => self.each(|key, value| entries.push((*key, *value)))?,
        }
        entries.sort_unstable_by_key(|(key, _)| *key);
        // A trie that lost the key at which the reading was is read from its beginning.
        entries.dedup_by_key(|(key, _)| *key);
        Ok(entries)
    }

    /// Shows every entry, in no order; some thousand are in memory at a time, whatever the size of the map. Entries that are there
    /// all the while are shown once each, whatever is written meanwhile.
    ///
    /// For hash maps, not for SOURCES.
    pub fn each(&self, mut show: impl FnMut(&K, &V)) -> Result<(), MapError> {
        let chunk = |keys: &[K], values: &[V]| {
            for (key, value) in keys.iter().zip(values) {
                show(key, value);
            }
            Ok(())
        };
        // SAFETY: the types have the map's sizes, and every bit pattern is a value.
        unsafe { bpf::chunks(self.fd.as_fd(), chunk) }.map_err(self.failed(Operation::List))
    }
}

/// A map to be read and written.
#[derive(Debug)]
pub struct Table<K, V>(View<K, V>);

impl<K, V> Table<K, V> {
    /// As [`View::new`].
    pub(crate) const fn new(name: MapName, fd: OwnedFd) -> Self {
        Self(View::new(name, fd))
    }
}

impl<K, V> Table<K, V> {
    /// The same map by a descriptor of its own, for another thread.
    pub fn try_clone(&self) -> Result<Self, MapError> {
        let View { name, fd, .. } = &self.0;
        let fd = fd.try_clone().map_err(self.0.failed(Operation::Get))?;
        Ok(Self::new(*name, fd))
    }
}

impl<K, V> Deref for Table<K, V> {
    type Target = View<K, V>;

    fn deref(&self) -> &View<K, V> {
        &self.0
    }
}

impl<K: Plain, V: Plain> Table<K, V> {
    /// Inserts or replaces. Programs see the old value or the new one, whole: the kernel swaps elements.
    ///
    /// # Errors
    /// [`MapError::is_full`] for a new key when there is no room.
    pub fn put(&self, key: &K, value: &V) -> Result<(), MapError> {
        // SAFETY: the types have the map's sizes, and no padding whose bytes would be undefined.
        unsafe { bpf::update(self.fd.as_fd(), key, value) }.map_err(self.failed(Operation::Put))
    }

    /// Puts many, one after the other, in few calls of the kernel.
    ///
    /// # Errors
    /// As [`put`](Self::put), with the number of entries put before: nothing was tried after the one that failed.
    ///
    /// # Panics
    /// There are not as many keys as values.
    pub fn put_all(&self, keys: &[K], values: &[V]) -> Result<(), (usize, MapError)> {
        assert_eq!(keys.len(), values.len(), "a value for each key");
        // SAFETY: the types have the map's sizes, and no padding whose bytes would be undefined.
        unsafe { batch::update_all(self.fd.as_fd(), keys, values) }
            .map_err(|(done, error)| (done, self.failed(Operation::Put)(error)))
    }

    /// Removes many, one after the other, in few calls of the kernel; absent is no error.
    ///
    /// # Errors
    /// What the kernel said, with the number of keys that were gone before: nothing was tried after the one that
    /// failed.
    pub fn delete_all(&self, keys: &[K]) -> Result<(), (usize, MapError)> {
        // SAFETY: the keys have the map's size, and no padding.
        unsafe { batch::delete_all(self.fd.as_fd(), keys) }
            .map_err(|(done, error)| (done, self.failed(Operation::Delete)(error)))
    }

    /// Replaces; `false`: there is no such key, and none is inserted.
    pub fn replace(&self, key: &K, value: &V) -> Result<bool, MapError> {
        // SAFETY: the types have the map's sizes, and no padding whose bytes would be undefined.
        unsafe { bpf::replace(self.fd.as_fd(), key, value) }.map_err(self.failed(Operation::Put))
    }

    /// Removes the entries that `keep` does not want kept, and returns how many; some thousand are in memory at a time,
    /// whatever the size of the map. Entries that are put meanwhile may be looked at or not; one that is written
    /// between being looked at and being removed is removed.
    ///
    /// For hash maps, not for SOURCES, which has few entries.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) -> Result<usize, MapError> {
        let mut removed = 0;
        let walked = |keys: &[K], values: &[V]| {
            for (key, _) in keys.iter().zip(values).filter(|(key, value)| !keep(key, value)) {
                // SAFETY: the key has the map's size, and no padding.
                removed += usize::from(unsafe { bpf::delete(self.fd.as_fd(), key) }?);
            }
            Ok(())
        };
        // SAFETY: the types have the map's sizes, and every bit pattern is a value.
        unsafe { bpf::chunks(self.fd.as_fd(), walked) }.map_err(self.failed(Operation::List))?;
        Ok(removed)
    }

    /// Removes; absent is no error. `true`: it was there.
    ///
    /// Its memory is given to the next entry at once, which a program that has just found the removed one would
    /// then see: between removing entries and putting others belongs a
    /// [`barrier`](crate::Datapath::barrier).
    pub fn delete(&self, key: &K) -> Result<bool, MapError> {
        // SAFETY: the key has the map's size, and no padding.
        unsafe { bpf::delete(self.fd.as_fd(), key) }.map_err(self.failed(Operation::Delete))
    }
}
