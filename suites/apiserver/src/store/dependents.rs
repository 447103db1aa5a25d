//! Who goes with its owner: the garbage collector's work (`pkg/controller/garbagecollector`), done at once.
//!
//! An owner that is deleted with `orphan` or `foregroundDeletion` among its finalizers stays until its dependents have
//! lost it, or until those that block it are gone; without, its dependents go after it. So does what is written for
//! owners that are gone already.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Key, Object, State,
    delete::{FOREGROUND, ORPHAN, Propagation, Terms},
};
use crate::kinds::Kind;

/// Objects by the uid of an owner. Bound: the owner references of the objects that are there.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    by_owner: HashMap<String, BTreeSet<Key>>,
    /// Owners whose dependents are being collected just now, one inside the other.
    collecting: Vec<Key>,
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

/// It waits for the dependents that block it.
fn waits(owner: &Object) -> bool {
    owner.is_terminating() && owner.has_finalizer(FOREGROUND)
}

impl State {
    /// The end of an owner: what only it owned is deleted (in the background, upstream would say); what somebody else
    /// owns too loses the reference. Owners that waited for it wait no longer.
    pub(super) fn end_owner(&mut self, gone: &Object, key: &Key) {
        for dependent in self.dependents.of(gone) {
            self.collect_dependent(&dependent);
        }
        self.unblock_owners(key, &gone.value);
    }

    /// An object was written: what names only owners that are not there goes at once, and what somebody else owns too loses
    /// the references to them.
    pub(super) fn miss_owners(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key).map(Arc::clone) else {
            return;
        };
        if references(&object.value).any(|reference| self.lacks(key, reference)) {
            self.collect_dependent(key);
        }
    }

    /// An object has gone, or has changed its owners: those that it had may be free to go.
    pub(super) fn unblock_owners(&mut self, dependent: &Key, before: &Value) {
        for reference in references(before) {
            let owner = self.owner(dependent, reference);
            if let Some((key, owner)) = owner
                && waits(&owner)
                // Whoever is at it looks at the end whether anything is left that blocks it.
                && !self.dependents.collecting.contains(&key)
            {
                self.collect(&key);
            }
        }
    }

    /// Does for an owner that is being deleted what its finalizers ask for.
    pub(super) fn collect(&mut self, key: &Key) {
        let Some(owner) = self.objects.get(key).map(Arc::clone) else {
            return;
        };
        let dependents = self.dependents.of(&owner);
        if owner.is_terminating() && owner.has_finalizer(ORPHAN) {
            let uid = owner.meta()["uid"].clone();
            for dependent in dependents {
                self.keep_references(&dependent, |_, _, reference| reference["uid"] != uid);
            }
            self.drop_finalizer(key, ORPHAN);
        } else if waits(&owner) {
            self.dependents.collecting.push(key.clone());
            for dependent in dependents {
                self.collect_dependent(&dependent);
            }
            self.dependents.collecting.pop();
            let blocked = self
                .dependents
                .of(&owner)
                .iter()
                .any(|key| self.blocks(key, &owner));
            if !blocked {
                self.drop_finalizer(key, FOREGROUND);
            }
        }
    }

    fn blocks(&self, dependent: &Key, owner: &Object) -> bool {
        let object = self.objects.get(dependent);
        let mut all = object.into_iter().flat_map(|object| references(&object.value));
        all.any(|reference| {
            reference["uid"] == owner.meta()["uid"] && reference["blockOwnerDeletion"] == true
        })
    }

    /// A dependent of an owner that goes is deleted, unless somebody stays who owns it.
    fn collect_dependent(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key).map(Arc::clone) else {
            return;
        };
        if references(&object.value).any(|reference| self.stays(key, reference)) {
            self.keep_references(key, Self::stays);
            return;
        }
        if object.is_terminating() {
            return;
        }
        let below = self.dependents.of(&object);
        let waited_for = references(&object.value)
            .any(|reference| self.owner(key, reference).is_some_and(|(_, owner)| waits(&owner)));
        let mut terms = Terms::default();
        if waited_for && !below.is_empty() {
            terms.propagation = Some(Propagation::Foreground);
            let mut below = below.iter().filter_map(|key| self.objects.get(key));
            if below.any(|object| waits(object)) {
                // They own each other: somebody has to go first.
                self.stop_blocking(key);
            }
        }
        self.delete(key, &object, terms);
    }

    fn stop_blocking(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key) else {
            return;
        };
        let mut value = object.value.clone();
        for reference in value["metadata"]["ownerReferences"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            reference["blockOwnerDeletion"] = false.into();
        }
        self.commit(key.clone(), value);
    }

    /// Drops the references of a dependent that are not to be kept.
    fn keep_references(&mut self, key: &Key, keep: impl Fn(&Self, &Key, &Value) -> bool) {
        let Some(object) = self.objects.get(key) else {
            return;
        };
        let mut value = object.value.clone();
        let left: Vec<Value> = references(&object.value)
            .filter(|reference| keep(self, key, reference))
            .cloned()
            .collect();
        if left.len() == references(&object.value).count() {
            return;
        }
        match value["metadata"].as_object_mut() {
            Some(meta) if left.is_empty() => drop(meta.remove("ownerReferences")),
            Some(meta) => drop(meta.insert("ownerReferences".to_owned(), left.into())),
            None => {}
        }
        self.commit(key.clone(), value);
    }

    /// Whether an owner is there and stays; one that nobody can look up does.
    fn stays(&self, dependent: &Key, reference: &Value) -> bool {
        if !can_be_found(dependent, reference) {
            return true;
        }
        self.owner(dependent, reference)
            .is_some_and(|(_, owner)| !waits(&owner))
    }

    /// Whether an owner is not there, or another object has its name.
    fn lacks(&self, dependent: &Key, reference: &Value) -> bool {
        can_be_found(dependent, reference) && self.owner(dependent, reference).is_none()
    }

    /// The owner that a reference names, if it is there.
    fn owner(&self, dependent: &Key, reference: &Value) -> Option<(Key, Arc<Object>)> {
        let kind = owner_kind(reference)?;
        let namespace = if kind.facts().namespaced {
            &dependent.namespace
        } else {
            ""
        };
        let key = Key::new(kind, namespace, reference["name"].as_str()?);
        let owner = self.objects.get(&key)?;
        (owner.meta()["uid"] == reference["uid"]).then(|| (key, Arc::clone(owner)))
    }
}

/// Not of a kind that this server doesn't have; and not in a namespace for a dependent that is in none, which upstream
/// leaves alone (`OwnerRefInvalidNamespace`).
fn can_be_found(dependent: &Key, reference: &Value) -> bool {
    owner_kind(reference).is_some_and(|kind| dependent.kind.facts().namespaced || !kind.facts().namespaced)
}

fn owner_kind(reference: &Value) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| {
        let facts = kind.facts();
        reference["kind"] == facts.kind && reference["apiVersion"] == facts.api_version()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Config, Store,
        store::{WriteOptions, delete::DeleteOptions},
    };

    /// Far more than the stack holds if each of them took a step down.
    const MANY: usize = 2000;

    #[test]
    fn an_owner_of_thousands_goes_after_all_of_them() {
        let cidr = "10.96.0.0/16".parse().expect("a range");
        let store = Store::new(Config::new(vec![cidr], Vec::new(), 6443)).expect("a store");
        let options = WriteOptions::default();
        let owner = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "owner"},
            "spec": {"ports": [{"port": 80}]}});
        let owner = store
            .create(Kind::Service, "default", owner, &options)
            .expect("created");
        for number in 0..MANY {
            let dependent = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": format!("d{number}"), "ownerReferences": [{"apiVersion": "v1", "kind": "Service",
                    "name": "owner", "uid": owner.meta()["uid"], "blockOwnerDeletion": true}]},
                "addressType": "IPv4", "endpoints": []});
            store
                .create(Kind::EndpointSlice, "default", dependent, &options)
                .expect("created");
        }
        let before = store.version();
        let foreground = DeleteOptions {
            propagation_policy: Some("Foreground".to_owned()),
            ..DeleteOptions::default()
        };
        let key = Key::new(Kind::Service, "default", "owner");
        store.delete(&key, &foreground).expect("deleted");
        let state = store.lock();
        assert!(state.dependents.by_owner.is_empty() && state.dependents.collecting.is_empty());
        let changes: Vec<_> = state.history.after(before).expect("known").collect();
        let gone = |change: &&&super::super::history::Change| change.new.is_none();
        assert_eq!(changes.iter().filter(gone).count(), MANY + 1);
        assert_eq!(
            changes.last().map(|change| &change.key),
            Some(&key),
            "it goes last"
        );
    }
}
