//! Objects as they come from the wire.

use std::fmt;

use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
    core::DynamicResourceScope,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Any object. Reading it fails only if it is no JSON.
#[derive(Clone)]
pub(super) struct Raw {
    metadata: ObjectMeta,
    pub(super) object: Value,
}

impl Raw {
    /// The version after this object.
    pub(super) fn version(&self) -> Option<&str> {
        let version = self.metadata.resource_version.as_deref();
        version.filter(|version| !version.is_empty())
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        // Often the larger half of an object, and not used.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let resource_version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            resource_version,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, object })
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
