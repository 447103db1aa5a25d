//! Who goes with its owner: the garbage collector's work, done at once.

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
    /// The end of an owner: what only it owned is deleted (in the background, upstream would say), or orphaned; what
    /// somebody else owns too loses the reference.
    pub(super) fn end_owner(&mut self, gone: &Object, orphan: bool) {
        let Some(uid) = gone.meta()["uid"].as_str() else {
            return;
        };
        let keys = self.dependents.by_owner.get(uid).cloned().unwrap_or_default();
        for key in keys {
            let Some(dependent) = self.objects.get(&key).map(Arc::clone) else {
                continue;
            };
            if !orphan && !references(&dependent.value).any(|reference| self.lives(&key, reference, uid)) {
                self.delete(&key, &dependent, None);
                continue;
            }
            let mut value = dependent.value.clone();
            let left: Vec<Value> = references(&value)
                .filter(|reference| reference["uid"] != uid)
                .cloned()
                .collect();
            match value["metadata"].as_object_mut() {
                Some(meta) if left.is_empty() => drop(meta.remove("ownerReferences")),
                Some(meta) => drop(meta.insert("ownerReferences".to_owned(), left.into())),
                None => {}
            }
            self.commit(key, value);
        }
    }

    /// Whether an owner other than the one that goes is there; one of a kind that this server doesn't have counts.
    fn lives(&self, dependent: &Key, reference: &Value, gone: &str) -> bool {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        if text("uid") == gone {
            return false;
        }
        let kind = Kind::ALL.into_iter().find(|kind| {
            let facts = kind.facts();
            facts.kind == text("kind") && facts.api_version() == text("apiVersion")
        });
        let Some(kind) = kind else {
            return true;
        };
        let namespace = if kind.facts().namespaced {
            &dependent.namespace
        } else {
            ""
        };
        let owner = self.objects.get(&Key::new(kind, namespace, text("name")));
        owner.is_some_and(|owner| owner.meta()["uid"] == text("uid"))
    }
}
