//! Dependents are deleted with their last owner: the garbage collector's work (`pkg/controller/garbagecollector`), done at
//! once and always in the background.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{Key, Object, State};
use crate::kinds::Kind;

/// Objects by the uid of an owner. Bound: the owner references of the objects that are there.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    by_owner: HashMap<String, BTreeSet<Key>>,
}

impl Dependents {
    /// Follows a change of an object.
    pub(super) fn follow(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        for uid in old.into_iter().flat_map(owners) {
            if let Some(keys) = self.by_owner.get_mut(uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_owner.remove(uid);
                }
            }
        }
        for uid in new.into_iter().flat_map(owners) {
            self.by_owner
                .entry(uid.to_owned())
                .or_default()
                .insert(key.clone());
        }
    }

    fn of(&self, owner: &Object) -> BTreeSet<Key> {
        let uid = owner.meta()["uid"].as_str().unwrap_or_default();
        self.by_owner.get(uid).cloned().unwrap_or_default()
    }
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    references(object).filter_map(|reference| reference["uid"].as_str())
}

impl State {
    /// An owner was removed: dependents without another owner are deleted, the others lose their reference to it.
    pub(super) fn collect_dependents(&mut self, gone: &Object) {
        for dependent in self.dependents.of(gone) {
            self.collect(&dependent);
        }
    }

    /// An object was written: it is deleted if all owners that it names are absent, and loses its references to absent ones
    /// otherwise.
    pub(super) fn collect_without_owners(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key).map(Arc::clone) else {
            return;
        };
        if references(&object.value).any(|reference| !self.stays(key, reference)) {
            self.collect(key);
        }
    }

    fn collect(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key).map(Arc::clone) else {
            return;
        };
        if references(&object.value).any(|reference| self.stays(key, reference)) {
            self.drop_absent_owners(key, &object);
        } else if !object.is_terminating() {
            self.delete(key, &object, None);
        }
    }

    fn drop_absent_owners(&mut self, key: &Key, object: &Object) {
        let left: Vec<Value> = references(&object.value)
            .filter(|reference| self.stays(key, reference))
            .cloned()
            .collect();
        if left.len() == references(&object.value).count() {
            return;
        }
        let mut value = object.value.clone();
        value["metadata"]["ownerReferences"] = left.into();
        self.commit(key.clone(), value);
    }

    /// Whether an owner is present, or can't be looked up.
    fn stays(&self, dependent: &Key, reference: &Value) -> bool {
        !can_be_found(dependent, reference) || self.has_owner(dependent, reference)
    }

    fn has_owner(&self, dependent: &Key, reference: &Value) -> bool {
        let (Some(kind), Some(name)) = (owner_kind(reference), reference["name"].as_str()) else {
            return false;
        };
        let namespace = if kind.info().namespaced {
            &dependent.namespace
        } else {
            ""
        };
        let owner = self.objects.get(&Key::new(kind, namespace, name));
        owner.is_some_and(|owner| owner.meta()["uid"] == reference["uid"])
    }
}

/// Whether an owner can be looked up: its kind is one of this server's, and it is not a namespaced owner of a cluster-scoped
/// dependent, which upstream leaves alone (`OwnerRefInvalidNamespace`).
fn can_be_found(dependent: &Key, reference: &Value) -> bool {
    owner_kind(reference).is_some_and(|kind| dependent.kind.info().namespaced || !kind.info().namespaced)
}

fn owner_kind(reference: &Value) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| {
        let info = kind.info();
        reference["kind"] == info.kind && reference["apiVersion"] == info.api_version()
    })
}
