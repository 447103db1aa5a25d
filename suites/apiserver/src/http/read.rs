//! Get and list.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::Response;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{
    Api, ObjectRequest,
    page::{From, Page},
    query::At,
    response_form::{self, Form},
};
use crate::{
    kinds::Kind,
    printers,
    respond::{self, Body},
    status::Status,
    store::{Horizon, Listed, Object, Scope},
};

/// A list at a version that does not exist yet waits this long for it, as upstream's cache does.
const FUTURE_LIMIT: Duration = Duration::from_secs(3);

impl Api {
    pub(super) fn get(&self, request: &ObjectRequest) -> Result<Response<Body>, Status> {
        let object = self.store.get(&request.target.key())?;
        shown(request, 200, &object)
    }

    pub(super) async fn list(&self, request: &ObjectRequest) -> Result<Response<Body>, Status> {
        // It has no effect on lists, but must be valid.
        request.query.timeout()?;
        let limit = request.query.limit()?;
        let scope = request.scope()?;
        if let Some(token) = request.query.continued()? {
            let listed = match token.from() {
                From::Newest => self.store.list(&scope),
                From::Version(_) if self.faults.expires(&request.client) => return Err(token.expired()),
                From::Version(version) => {
                    self.wait_for_version(version).await?;
                    self.store.list_at(&scope, version).map_err(|_| token.expired())?
                }
            };
            return listing(request, &Page::cut(listed, &scope, Some(&token), limit));
        }
        let listed = match request.query.list_at()? {
            At::Newest => self.store.list(&scope),
            // From a cache, upstream's lists come whole.
            At::Any => return listing(request, &Page::whole(self.cached(request, &scope, 0).await?)),
            At::NotOlderThan(version) => self.cached(request, &scope, version).await?,
            At::Exact(version) if self.faults.expires(&request.client) => {
                return Err(Status::expired(version, self.store.version()));
            }
            At::Exact(version) => {
                self.wait_for_version(version).await?;
                self.store.list_at(&scope, version)?
            }
        };
        listing(request, &Page::cut(listed, &scope, None, limit))
    }

    /// A state not older than a version: the newest one, or that of a lagging cache.
    async fn cached(&self, request: &ObjectRequest, scope: &Scope, version: u64) -> Result<Listed, Status> {
        if self.faults.cache(&request.client) != Horizon::Now {
            let seen = || self.store.seen(self.faults.cache(&request.client));
            if seen() < version {
                tokio::time::sleep(FUTURE_LIMIT).await;
            }
            let seen = seen();
            return if seen < version {
                Err(Status::future_version(version, seen))
            } else {
                self.store.list_at(scope, seen)
            };
        }
        self.wait_for_version(version).await?;
        Ok(self.store.list(scope))
    }

    /// Waits until the store has reached a version.
    pub(super) async fn wait_for_version(&self, version: u64) -> Result<(), Status> {
        let mut head = self.store.head();
        let waited = tokio::time::timeout(FUTURE_LIMIT, head.wait_for(|head| *head >= version)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Status::internal("the store is gone")),
            Err(_) => {
                let current = *self.store.head().borrow();
                Err(Status::future_version(version, current))
            }
        }
    }
}

impl ObjectRequest {
    pub(super) fn scope(&self) -> Result<Scope, Status> {
        let mut selector = self.query.selector(self.target.kind)?;
        if let Some(name) = &self.target.name {
            selector.require_name(name);
        }
        let namespace = Some(self.target.namespace.clone()).filter(|namespace| !namespace.is_empty());
        Ok(Scope {
            kind: self.target.kind,
            namespace,
            selector,
        })
    }
}

/// One object in the requested form.
pub(super) fn shown(
    request: &ObjectRequest,
    code: u16,
    object: &Arc<Object>,
) -> Result<Response<Body>, Status> {
    Ok(match request.form {
        Form::Object => respond::bytes(code, object.json.clone()),
        Form::Metadata => respond::json(code, &metadata_only(&object.value)),
        Form::Table => {
            let include = response_form::include_object(request.query.get("includeObject"))?;
            let version = object.version.to_string();
            let rows = [object.value.clone()];
            respond::json(
                code,
                &printers::table(request.target.kind, &rows, &version, include, true),
            )
        }
    })
}

/// A list in the requested form.
pub(super) fn listing(request: &ObjectRequest, page: &Page) -> Result<Response<Body>, Status> {
    let kind = request.target.kind;
    let objects = page.objects();
    Ok(match request.form {
        Form::Object => respond::bytes(200, list_json(kind, page)),
        Form::Metadata => {
            let items: Vec<Value> = objects
                .iter()
                .map(|object| metadata_only(&object.value))
                .collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": page.metadata(), "items": items,
            });
            respond::json(200, &list)
        }
        Form::Table => {
            let include = response_form::include_object(request.query.get("includeObject"))?;
            let rows: Vec<Value> = objects.iter().map(|object| object.value.clone()).collect();
            let mut table = printers::table(kind, &rows, "", include, true);
            table["metadata"] = page.metadata();
            respond::json(200, &table)
        }
    })
}

/// A list of a kind.
fn list_json(kind: Kind, page: &Page) -> Bytes {
    let info = kind.info();
    let (kind, api) = (format!("{}List", info.kind), info.api_version());
    let metadata = page.metadata();
    let mut text = format!(r#"{{"kind":"{kind}","apiVersion":"{api}","metadata":{metadata},"items":["#);
    for (index, object) in page.objects().iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        // Writing JSON into memory can't fail.
        text.push_str(&serde_json::to_string(&Item(&object.value)).unwrap_or_default());
    }
    text.push_str("]}");
    Bytes::from(text)
}

/// An object in a list: as in upstream's typed lists, it does not repeat its kind.
struct Item<'a>(&'a Value);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion")))
    }
}

/// `PartialObjectMetadata` of an object.
pub(super) fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
