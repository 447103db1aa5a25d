//! Backends in the map: their numbers, and how many slots carry each.

use std::collections::{BTreeSet, HashMap};

use lb_abi::{BackendId, capacity};

use crate::{ids::IdAllocator, transport::Backend};

/// Backends by number. A backend is shared by every service port that has it, and counted by the slots that
/// carry it, current or on their way out: never by names.
#[derive(Debug)]
pub(super) struct Backends {
    ids: IdAllocator,
    known: HashMap<Backend, BackendId>,
    entries: HashMap<BackendId, Entry>,
    idle: BTreeSet<BackendId>,
}

#[derive(Debug)]
struct Entry {
    /// `None`: not written by us, never to be given to a new slot.
    backend: Option<Backend>,
    carriers: usize,
}

impl Backends {
    pub(super) fn new() -> Self {
        Self {
            ids: IdAllocator::new(capacity::BACKENDS),
            known: HashMap::new(),
            entries: HashMap::new(),
            idle: BTreeSet::new(),
        }
    }

    /// Takes over an entry of an adopted map, or a number that only a slot knows. The first of two entries for
    /// one backend is the one to be used.
    pub(super) fn adopt(&mut self, id: BackendId, backend: Option<Backend>) {
        if self.entries.contains_key(&id) {
            return;
        }
        let usable = self.ids.contains(id);
        if usable {
            self.ids.reserve(id);
        }
        let backend = backend.filter(|backend| usable && !self.known.contains_key(backend));
        if let Some(backend) = backend {
            self.known.insert(backend, id);
        }
        self.entries.insert(id, Entry { backend, carriers: 0 });
        self.idle.insert(id);
    }

    /// The number of a backend in the map.
    pub(super) fn id(&self, backend: &Backend) -> Option<BackendId> {
        self.known.get(backend).copied()
    }

    /// Whether new slots may carry it.
    pub(super) fn usable(&self, id: BackendId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.backend.is_some())
    }

    /// A number for a backend that is about to be put; `None` if all are in use.
    pub(super) fn allocate(&mut self) -> Option<BackendId> {
        self.ids.allocate()
    }

    /// The put failed.
    pub(super) fn give_back(&mut self, id: BackendId) {
        self.ids.free(id);
    }

    /// The put succeeded.
    pub(super) fn put(&mut self, id: BackendId, backend: Backend) {
        self.known.insert(backend, id);
        self.entries.insert(
            id,
            Entry {
                backend: Some(backend),
                carriers: 0,
            },
        );
        self.idle.insert(id);
    }

    /// One more slot carries it.
    pub(super) fn carried(&mut self, id: BackendId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.carriers += 1;
            self.idle.remove(&id);
        }
    }

    /// One slot less carries it.
    pub(super) fn released(&mut self, id: BackendId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.carriers -= 1;
            if entry.carriers == 0 {
                self.idle.insert(id);
            }
        }
    }

    /// Those that no slot carries.
    pub(super) fn idle(&self) -> Vec<BackendId> {
        self.idle.iter().copied().collect()
    }

    /// The entry is gone; its number may be used again.
    pub(super) fn deleted(&mut self, id: BackendId) {
        self.idle.remove(&id);
        if let Some(Entry {
            backend: Some(backend),
            ..
        }) = self.entries.remove(&id)
        {
            self.known.remove(&backend);
        }
        if self.ids.contains(id) {
            self.ids.free(id);
        }
    }
}
