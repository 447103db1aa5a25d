//! One version of one object, immutable and shared.

use std::{cmp::Ordering, iter, sync::Arc};

use bytes::Bytes;
use serde_json::Value;

/// What a key of the store is: kind, namespace (empty for cluster-scoped kinds), name.
///
/// Keys of a kind are in etcd's order, by the bytes of `namespace/name`: what is in `a-b` comes before what is in `a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) kind: crate::kinds::Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: crate::kinds::Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn path(&self) -> impl Iterator<Item = u8> {
        let namespace = self.namespace.bytes();
        namespace.chain(iter::once(b'/')).chain(self.name.bytes())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let kinds = self.kind.cmp(&other.kind);
        kinds.then_with(|| self.path().cmp(other.path()))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One version of one object with its JSON, made once and shared by history, lists and watches.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    pub(crate) json: Bytes,
    pub(crate) version: u64,
}

impl Object {
    /// Stamps a version.
    pub(crate) fn new(mut value: Value, version: u64) -> Arc<Self> {
        value["metadata"]["resourceVersion"] = version.to_string().into();
        let json = Bytes::from(value.to_string());
        Arc::new(Self { value, json, version })
    }

    /// The same state at a later version: how a DELETED event shows it.
    pub(crate) fn restamped(&self, version: u64) -> Arc<Self> {
        Self::new(self.value.clone(), version)
    }

    pub(crate) fn meta(&self) -> &Value {
        &self.value["metadata"]
    }

    pub(crate) fn is_terminating(&self) -> bool {
        !self.meta()["deletionTimestamp"].is_null()
    }

    pub(crate) fn has_finalizers(&self) -> bool {
        self.meta()["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    }
}
