//! Objects of the API, raw: what is read back is what the API keeps, nothing dropped or re-defaulted.

use std::{fmt, sync::Arc, time::Instant};

use k8s_openapi::api::{
    core::v1::{Namespace, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    history::{Event, History, now_us},
    limits::Limits,
    verdict::Halt,
    watch::Watch,
};

/// Who the suite is, in `managed-by` labels and as field manager.
pub const MANAGER: &str = "plumbline";
/// Label of every namespace of the suite: the run that made it.
pub const RUN_LABEL: &str = "plumbline-run";
/// Label of every namespace of the suite: the case that made it.
pub const CASE_LABEL: &str = "plumbline-case";

/// Kinds that the suite writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// core/v1.
    Namespace,
    /// core/v1.
    Pod,
    /// core/v1.
    Service,
    /// discovery.k8s.io/v1.
    EndpointSlice,
}

impl Kind {
    /// Its resource.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Namespace => ApiResource::erase::<Namespace>(&()),
            Self::Pod => ApiResource::erase::<Pod>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::EndpointSlice => ApiResource::erase::<EndpointSlice>(&()),
        }
    }

    /// The kind of a manifest's object.
    pub fn of(object: &Value) -> Result<Self, Halt> {
        match object["kind"].as_str() {
            Some("Namespace") => Ok(Self::Namespace),
            Some("Pod") => Ok(Self::Pod),
            Some("Service") => Ok(Self::Service),
            Some("EndpointSlice") => Ok(Self::EndpointSlice),
            other => Err(Halt::Harness(format!(
                "a manifest has an object of kind {other:?}"
            ))),
        }
    }
}

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty for namespaces.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A Service.
    #[must_use]
    pub fn service(namespace: &str, name: &str) -> Self {
        Self::new(Kind::Service, namespace, name)
    }

    /// An EndpointSlice.
    #[must_use]
    pub fn slice(namespace: &str, name: &str) -> Self {
        Self::new(Kind::EndpointSlice, namespace, name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A write that the API has acknowledged and, for Services and EndpointSlices, the suite's own watch has.
#[derive(Clone, Debug)]
pub struct Written {
    /// Of what.
    pub key: Key,
    /// The version that it made.
    pub resource_version: String,
    /// When the response came: limits run from here.
    pub at: Instant,
    /// The object as it was returned.
    pub object: Value,
}

/// The API as the suite uses it.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    history: Arc<History>,
    watch: Arc<Watch>,
    limits: Limits,
}

impl Objects {
    pub(crate) fn new(client: Client, history: Arc<History>, watch: Arc<Watch>, limits: Limits) -> Self {
        Self {
            client,
            history,
            watch,
            limits,
        }
    }

    /// The suite's own watch.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Creates an object of a manifest.
    pub async fn create(&self, object: &Value) -> Result<Written, Halt> {
        let kind = Kind::of(object)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = Key::new(kind, text("namespace"), text("name"));
        let typed: DynamicObject = serde_json::from_value(object.clone())
            .map_err(|error| Halt::Harness(format!("{key} in the manifest is no object: {error}")))?;
        let sent_us = now_us();
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let done = self.api(&key).create(&params, &typed).await;
        self.acknowledged("create", key, sent_us, object.clone(), done)
            .await
    }

    /// Changes an object by a merge patch (RFC 7386).
    pub async fn patch(&self, key: &Key, patch: Value) -> Result<Written, Halt> {
        let sent_us = now_us();
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let done = self
            .api(key)
            .patch(&key.name, &params, &Patch::Merge(&patch))
            .await;
        self.acknowledged("patch", key.clone(), sent_us, patch, done)
            .await
    }

    /// Changes an object by reading it, setting top-level fields as they are (a `null` stays a `null`), and
    /// putting it back.
    pub async fn replace_fields(&self, key: &Key, fields: &Value) -> Result<Written, Halt> {
        let mut object = self.get(key).await?;
        for (name, value) in fields.as_object().into_iter().flatten() {
            object[name] = value.clone();
        }
        let typed: DynamicObject = serde_json::from_value(object)
            .map_err(|error| Halt::Harness(format!("{key} can't be put back: {error}")))?;
        let sent_us = now_us();
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let done = self.api(key).replace(&key.name, &params, &typed).await;
        self.acknowledged("replace", key.clone(), sent_us, fields.clone(), done)
            .await
    }

    /// Deletes an object.
    pub async fn delete(&self, key: &Key) -> Result<Written, Halt> {
        let sent_us = now_us();
        self.api(key)
            .delete(&key.name, &DeleteParams::default())
            .await
            .map_err(|error| refused(&format!("delete {key}"), error))?;
        let at = Instant::now();
        self.history.add(&Event::Write {
            verb: "delete",
            key: key.clone(),
            sent_us,
            resource_version: String::new(),
            body: Value::Null,
        });
        if is_watched(key.kind) {
            self.watch.deleted(key, self.limits.own_watch).await?;
        }
        Ok(Written {
            key: key.clone(),
            resource_version: String::new(),
            at,
            object: Value::Null,
        })
    }

    /// Reads an object.
    pub async fn get(&self, key: &Key) -> Result<Value, Halt> {
        let object = self
            .api(key)
            .get(&key.name)
            .await
            .map_err(|error| refused(&format!("get {key}"), error))?;
        serde_json::to_value(object).map_err(|error| Halt::Harness(format!("{key}: {error}")))
    }

    /// All objects of a kind in a namespace.
    pub async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Value>, Halt> {
        let api = self.api(&Key::new(kind, namespace, ""));
        let list = api
            .list(&ListParams::default())
            .await
            .map_err(|error| refused(&format!("list {kind:?} in {namespace}"), error))?;
        Ok(list
            .items
            .into_iter()
            .filter_map(|object| serde_json::to_value(object).ok())
            .collect())
    }

    /// A typed-by-name interface to a key's resource.
    pub(crate) fn api(&self, key: &Key) -> Api<DynamicObject> {
        api(&self.client, key)
    }

    async fn acknowledged(
        &self,
        verb: &'static str,
        key: Key,
        sent_us: u64,
        body: Value,
        done: Result<DynamicObject, kube::Error>,
    ) -> Result<Written, Halt> {
        let object = done.map_err(|error| refused(&format!("{verb} {key}"), error))?;
        let at = Instant::now();
        let resource_version = object.metadata.resource_version.clone().unwrap_or_default();
        self.history.add(&Event::Write {
            verb,
            key: key.clone(),
            sent_us,
            resource_version: resource_version.clone(),
            body,
        });
        if is_watched(key.kind) {
            self.watch
                .has(&key, &resource_version, self.limits.own_watch)
                .await?;
        }
        let object =
            serde_json::to_value(object).map_err(|error| Halt::Harness(format!("{key}: {error}")))?;
        Ok(Written {
            key,
            resource_version,
            at,
            object,
        })
    }
}

/// The merge patch that sets an annotation.
#[must_use]
pub fn annotation(name: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { name: value } } })
}

pub(crate) fn api(client: &Client, key: &Key) -> Api<DynamicObject> {
    let resource = key.kind.resource();
    if key.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &key.namespace, &resource)
    }
}

pub(crate) fn refused(what: &str, source: kube::Error) -> Halt {
    Halt::Api {
        what: what.to_owned(),
        source: Box::new(source),
    }
}

fn is_watched(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::EndpointSlice)
}
