//! One version of one object, immutable and shared.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

/// What a key of the store is: kind, namespace (empty for cluster-scoped kinds), name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &Value> {
        self.meta()["finalizers"].as_array().into_iter().flatten()
    }

    pub(crate) fn has_finalizers(&self) -> bool {
        self.finalizers().next().is_some()
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().any(|finalizer| finalizer == name)
    }
}
