//! A store of objects of one kind, and the watch that tells of it.

use std::collections::{BTreeMap, VecDeque};

use reference_agent::{
    feed::Change,
    model::Event,
    names::ObjectName,
    relist::{Object, Relist, Watched},
};

/// One kind of object: the store, its watch, and what the agent was told.
pub(crate) struct Feed<T> {
    pub(crate) store: BTreeMap<ObjectName, T>,
    queue: VecDeque<Watched<T>>,
    last: Option<Watched<T>>,
    relist: Relist,
}

/// What the watch of any kind does.
pub(crate) trait Watching {
    /// Whether nothing is on its way.
    fn is_idle(&self) -> bool;
    /// The watch breaks: what was not delivered never will be, a list follows, complete or not.
    fn list(&mut self, objects: usize);
    /// What comes next.
    fn deliver(&mut self) -> Vec<Event>;
    /// What came last, once more.
    fn repeat(&mut self) -> Vec<Event>;
    /// Another agent begins to watch.
    fn restart(&mut self);
}

impl<T: Object + Clone> Feed<T> {
    pub(crate) fn new() -> Self {
        let mut feed = Self {
            store: BTreeMap::new(),
            queue: VecDeque::new(),
            last: None,
            relist: Relist::default(),
        };
        feed.list(usize::MAX);
        feed
    }

    pub(crate) fn put(&mut self, object: T) {
        self.store.insert(object.name(), object.clone());
        self.queue.push_back(Watched::Apply(object));
    }

    pub(crate) fn delete(&mut self, name: &ObjectName) {
        if self.store.remove(name).is_some() {
            self.queue.push_back(Watched::Delete(name.clone()));
        }
    }
}

fn events(changes: Vec<Change>) -> Vec<Event> {
    changes.into_iter().map(|change| change.event).collect()
}

impl<T: Object + Clone> Watching for Feed<T> {
    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn list(&mut self, objects: usize) {
        self.queue.clear();
        self.last = None;
        self.queue.push_back(Watched::Init);
        self.queue
            .extend(self.store.values().take(objects).cloned().map(Watched::InitApply));
        if objects == usize::MAX {
            self.queue.push_back(Watched::InitDone);
        }
    }

    fn deliver(&mut self) -> Vec<Event> {
        let Some(watched) = self.queue.pop_front() else {
            return Vec::new();
        };
        self.last = matches!(watched, Watched::Apply(_) | Watched::Delete(_)).then(|| watched.clone());
        events(self.relist.take(watched, None))
    }

    fn repeat(&mut self) -> Vec<Event> {
        self.last
            .clone()
            .map_or_else(Vec::new, |watched| events(self.relist.take(watched, None)))
    }

    fn restart(&mut self) {
        self.relist = Relist::default();
        self.list(usize::MAX);
    }
}
