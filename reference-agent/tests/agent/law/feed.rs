//! A store of objects of one kind, and the watch that tells of it.

use std::collections::{BTreeMap, VecDeque};

use reference_agent::{
    model::Event,
    names::ObjectName,
    relist::{Object, Relist, Watched},
};

/// One kind of object: the store, its watch, and what the agent was told.
pub(super) struct Feed<T> {
    pub(super) store: BTreeMap<ObjectName, T>,
    pub(super) queue: VecDeque<Watched<T>>,
    pub(super) last: Option<Watched<T>>,
    pub(super) relist: Relist,
}

impl<T: Object + Clone> Feed<T> {
    pub(super) fn new() -> Self {
        let mut feed = Self {
            store: BTreeMap::new(),
            queue: VecDeque::new(),
            last: None,
            relist: Relist::default(),
        };
        feed.list(usize::MAX);
        feed
    }

    pub(super) fn put(&mut self, object: T) {
        self.store.insert(object.name().clone(), object.clone());
        self.queue.push_back(Watched::Apply(object));
    }

    pub(super) fn delete(&mut self, name: &ObjectName) {
        if self.store.remove(name).is_some() {
            self.queue.push_back(Watched::Delete(name.clone()));
        }
    }

    /// The watch breaks: what was not delivered never will be, a list follows, complete or not.
    pub(super) fn list(&mut self, objects: usize) {
        self.queue.clear();
        self.last = None;
        self.queue.push_back(Watched::Init);
        self.queue
            .extend(self.store.values().take(objects).cloned().map(Watched::InitApply));
        if objects == usize::MAX {
            self.queue.push_back(Watched::InitDone);
        }
    }

    pub(super) fn deliver(&mut self) -> Vec<Event> {
        let Some(watched) = self.queue.pop_front() else {
            return Vec::new();
        };
        self.last = matches!(watched, Watched::Apply(_) | Watched::Delete(_)).then(|| watched.clone());
        self.relist.take(watched)
    }

    pub(super) fn repeat(&mut self) -> Vec<Event> {
        self.last
            .clone()
            .map_or_else(Vec::new, |watched| self.relist.take(watched))
    }

    pub(super) fn restart(&mut self) {
        self.relist = Relist::default();
        self.list(usize::MAX);
    }
}
