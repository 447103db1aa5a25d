//! Backends in the map: their numbers and their uses.

use std::collections::BTreeSet;

use lb_abi::{BackendId, capacity};

use super::departed::is_udp;
use crate::{endpoint_address::Backend, hash::HashMap, ids::IdAllocator};

/// Backends by number, each shared by all its service ports. It counts the slots with it, current ones and those to be
/// deleted, and the service ports whose established flows may keep it.
///
/// Whether a backend is local is part of its identity: one that becomes local gets another number. Two Services may
/// disagree about it, and a switch of generations changes all backends of a service port at once, which overwriting them
/// would not.
#[derive(Debug)]
pub(super) struct Backends {
    ids: IdAllocator,
    known: HashMap<Backend, BackendId>,
    entries: HashMap<BackendId, Entry>,
    idle: BTreeSet<BackendId>,
    /// Held for the earlier start that wrote them, until every plan has been seen once.
    adopted: Vec<BackendId>,
}

#[derive(Debug)]
struct Entry {
    /// `None`: not written by an agent of this version, and not used for new slots.
    backend: Option<Backend>,
    /// Slots and members.
    carriers: u32,
    /// Service ports that it serves, and the earlier start.
    holders: u32,
    /// Whether a service port has held it, and so reports its departure.
    claimed: bool,
}

impl Backends {
    pub(super) fn new() -> Self {
        Self {
            ids: IdAllocator::new(capacity::BACKENDS - 1),
            known: HashMap::default(),
            entries: HashMap::default(),
            idle: BTreeSet::new(),
            adopted: Vec::new(),
        }
    }

    /// Adopts an entry, or a number that only a slot has. Of two entries of one backend the first is used.
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
        let entry = Entry {
            backend,
            carriers: 0,
            holders: 1,
            claimed: false,
        };
        self.entries.insert(id, entry);
        self.adopted.push(id);
    }

    /// Every plan has been seen: the earlier start holds nothing any more. The result: its UDP backends that no service
    /// port has held, whose flows and sockets must be ended.
    pub(super) fn release_adopted(&mut self) -> Vec<(BackendId, Backend)> {
        let mut gone = Vec::new();
        for id in std::mem::take(&mut self.adopted) {
            self.dropped(id);
            let entry = self.entries.get(&id).filter(|entry| !entry.claimed);
            let backend = entry.and_then(|entry| entry.backend);
            gone.extend(backend.filter(is_udp).map(|backend| (id, backend)));
        }
        gone
    }

    /// The number of a backend in the map.
    pub(super) fn id(&self, backend: &Backend) -> Option<BackendId> {
        self.known.get(backend).copied()
    }

    /// The backend of a number that was written by an agent of this version.
    pub(super) fn get(&self, id: BackendId) -> Option<Backend> {
        self.entries.get(&id)?.backend
    }

    /// A number for a backend that is about to be put; `None` if all are in use.
    pub(super) fn allocate(&mut self) -> Option<BackendId> {
        self.ids.allocate()
    }

    /// The put failed: frees the number.
    pub(super) fn free(&mut self, id: BackendId) {
        self.ids.free(id);
    }

    /// The put succeeded.
    pub(super) fn put(&mut self, id: BackendId, backend: Backend) {
        self.known.insert(backend, id);
        let entry = Entry {
            backend: Some(backend),
            carriers: 0,
            holders: 0,
            claimed: false,
        };
        self.entries.insert(id, entry);
        self.idle.insert(id);
    }

    /// One more slot has it.
    pub(super) fn carried(&mut self, id: BackendId) {
        self.count(id, |entry| entry.carriers += 1);
    }

    /// One slot less has it.
    pub(super) fn released(&mut self, id: BackendId) {
        self.count(id, |entry| entry.carriers -= 1);
    }

    /// One more service port holds it.
    pub(super) fn held(&mut self, id: BackendId) {
        self.count(id, |entry| {
            entry.holders += 1;
            entry.claimed = true;
        });
    }

    /// One service port less holds it.
    pub(super) fn dropped(&mut self, id: BackendId) {
        self.count(id, |entry| entry.holders -= 1);
    }

    fn count(&mut self, id: BackendId, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let needed = entry.carriers + entry.holders != 0;
        change(entry);
        match (needed, entry.carriers + entry.holders != 0) {
            (false, true) => _ = self.idle.remove(&id),
            (true, false) => _ = self.idle.insert(id),
            _ => {}
        }
    }

    /// Backends that no slot has and no service port holds.
    pub(super) const fn idle(&self) -> &BTreeSet<BackendId> {
        &self.idle
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

    /// Whether a number is in use.
    pub(super) fn has(&self, id: BackendId) -> bool {
        self.entries.contains_key(&id)
    }

    /// How many numbers are in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The map, as it was written.
    pub(super) fn written(&self) -> impl Iterator<Item = (BackendId, Backend)> {
        let entries = self.entries.iter();
        entries.filter_map(|(&id, entry)| Some((id, entry.backend?)))
    }
}
