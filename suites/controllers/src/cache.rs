//! The objects of one kind, by a watch and by this controller's own writes.

use std::{collections::BTreeMap, fmt::Debug};

use futures::StreamExt;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};

use crate::Events;

/// Namespace (empty for cluster-scoped kinds) and name.
pub type Key = (String, String);

/// The key of an object.
pub(crate) fn key<K: ResourceExt>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Lists and watches all objects of a kind forever. Errors are retried with kube's backoff (at most 30 s).
pub(crate) fn events<K>(api: Api<K>) -> Events<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    K::DynamicType: Default + Clone,
{
    watcher(api, watcher::Config::default()).default_backoff().boxed()
}

/// The objects of one kind.
pub(crate) struct Cache<K> {
    objects: BTreeMap<Key, K>,
    /// Objects of a list that is not complete yet.
    listing: Option<BTreeMap<Key, K>>,
    listed: bool,
}

impl<K: ResourceExt + Clone> Cache<K> {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: None,
            listed: false,
        }
    }

    /// Whether the first list is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&K> {
        self.objects.get(key)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &K> {
        self.objects.values()
    }

    /// The objects of one namespace.
    pub(crate) fn of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a K> {
        let start = (namespace.to_owned(), String::new());
        self.objects
            .range(start..)
            .take_while(move |((found, _), _)| found == namespace)
            .map(|(_, object)| object)
    }

    /// Applies an event. Returns the objects that it changed, in their old and new states.
    pub(crate) fn apply(&mut self, event: Event<K>) -> Vec<K> {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(key(&object), object);
                }
                Vec::new()
            }
            Event::InitDone => {
                self.listed = true;
                let new = self.listing.take().unwrap_or_default();
                let old = std::mem::replace(&mut self.objects, new);
                old.into_values().chain(self.objects.values().cloned()).collect()
            }
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => self
                .objects
                .remove(&key(&object))
                .into_iter()
                .chain([object])
                .collect(),
        }
    }

    /// Stores an object unless a later version is known: own writes are stored before their events arrive. Returns its old
    /// and new states.
    pub(crate) fn put(&mut self, object: K) -> Vec<K> {
        let known = self.objects.get(&key(&object));
        if known.is_some_and(|known| known.uid() == object.uid() && version(known) >= version(&object)) {
            return Vec::new();
        }
        let old = self.objects.insert(key(&object), object.clone());
        old.into_iter().chain([object]).collect()
    }

    /// Stores the assumed result of a write until its event arrives.
    pub(crate) fn assume(&mut self, object: K) {
        self.objects.insert(key(&object), object);
    }

    /// Removes an object that this controller deleted.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.objects.remove(key);
    }
}

/// Versions of one kind are comparable (KEP-5504).
fn version<K: ResourceExt>(object: &K) -> u64 {
    object
        .resource_version()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}
