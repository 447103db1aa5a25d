//! Get and list.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::Response;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{
    Api, Asked,
    accept::{self, Form},
    page::{From, Page},
    query::At,
};
use crate::{
    kinds::Kind,
    respond::{self, Body},
    status::Status,
    store::{Horizon, Listed, Object, Scope},
    table,
};

/// A list at a version that does not exist yet waits this long for it, as upstream's cache does.
const FUTURE_LIMIT: Duration = Duration::from_secs(3);

impl Api {
    pub(super) fn get(&self, asked: &Asked) -> Result<Response<Body>, Status> {
        let object = self.store.get(&asked.target.key())?;
        shown(asked, 200, &object)
    }

    pub(super) async fn list(&self, asked: &Asked) -> Result<Response<Body>, Status> {
        // It may be ignored, but must be right.
        asked.query.timeout()?;
        let limit = asked.query.limit()?;
        let scope = asked.scope()?;
        if let Some(token) = asked.query.continued()? {
            let listed = match token.from() {
                From::Newest => self.store.list(&scope),
                From::Version(_) if self.faults.expires(&asked.client) => return Err(token.expired()),
                From::Version(version) => {
                    self.reached(version).await?;
                    self.store.list_at(&scope, version).map_err(|_| token.expired())?
                }
            };
            return listing(asked, &Page::cut(listed, &scope, Some(&token), limit));
        }
        let listed = match asked.query.list_at()? {
            At::Newest => self.store.list(&scope),
            // From a cache, upstream's lists come whole.
            At::Any => return listing(asked, &Page::whole(self.cached(asked, &scope, 0).await?)),
            At::NotOlderThan(version) => self.cached(asked, &scope, version).await?,
            At::Exact(version) if self.faults.expires(&asked.client) => {
                return Err(Status::expired(version, self.store.version()));
            }
            At::Exact(version) => {
                self.reached(version).await?;
                self.store.list_at(&scope, version)?
            }
        };
        listing(asked, &Page::cut(listed, &scope, None, limit))
    }

    /// The state not older than a version: the newest one, or what a cache that lags shows.
    async fn cached(&self, asked: &Asked, scope: &Scope, version: u64) -> Result<Listed, Status> {
        if self.faults.cache(&asked.client) != Horizon::Now {
            let seen = || self.store.seen(self.faults.cache(&asked.client));
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
        self.reached(version).await?;
        Ok(self.store.list(scope))
    }

    /// Waits for a version that the store has not reached.
    pub(super) async fn reached(&self, version: u64) -> Result<(), Status> {
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

impl Asked {
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

/// One object in the form that was asked for.
pub(super) fn shown(asked: &Asked, code: u16, object: &Arc<Object>) -> Result<Response<Body>, Status> {
    Ok(match asked.form {
        Form::Object => respond::bytes(code, object.json.clone()),
        Form::Metadata => respond::json(code, &metadata_only(&object.value)),
        Form::Table => {
            let include = accept::include_object(asked.query.get("includeObject"))?;
            let version = object.version.to_string();
            let rows = [object.value.clone()];
            respond::json(
                code,
                &table::table(asked.target.kind, &rows, &version, include, true),
            )
        }
    })
}

/// A list in the form that was asked for.
pub(super) fn listing(asked: &Asked, page: &Page) -> Result<Response<Body>, Status> {
    let kind = asked.target.kind;
    let objects = page.objects();
    Ok(match asked.form {
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
            let include = accept::include_object(asked.query.get("includeObject"))?;
            let rows: Vec<Value> = objects.iter().map(|object| object.value.clone()).collect();
            let mut table = table::table(kind, &rows, "", include, true);
            table["metadata"] = page.metadata();
            respond::json(200, &table)
        }
    })
}

/// A list of a kind.
fn list_json(kind: Kind, page: &Page) -> Bytes {
    let facts = kind.facts();
    let (kind, api) = (format!("{}List", facts.kind), facts.api_version());
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
