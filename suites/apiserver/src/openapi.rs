//! OpenAPI v3, as much of it as clients decide by: the paths and the parameters of each kind.
//!
//! There are no schemas. kubectl reads here that the server validates fields itself (`fieldValidation` of the
//! PATCH operation), and computes three-way patches from the types built into it.

use hyper::Response;
use serde_json::{Map, Value, json};

use crate::{
    discovery,
    kinds::{Facts, Kind},
    respond::{self, Body},
    status::Status,
};

/// The index, or the document of `api/v1` or `apis/GROUP/v1`.
///
/// # Errors
/// 404 for any other document.
pub(crate) fn answer(document: Option<&str>) -> Result<Response<Body>, Status> {
    let facts = || Kind::ALL.into_iter().map(Kind::facts);
    let Some(document) = document else {
        let entry = |facts: &Facts| {
            let name = base(facts);
            let name = name.trim_start_matches('/').to_owned();
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{name}")});
            (name, url)
        };
        let paths: Map<String, Value> = facts().map(entry).collect();
        return Ok(respond::json(200, &json!({"paths": paths})));
    };
    let mut paths = Map::new();
    for facts in facts().filter(|facts| base(facts).trim_start_matches('/') == document) {
        describe(facts, &mut paths);
    }
    if paths.is_empty() {
        return Err(Status::no_such_path());
    }
    let version = discovery::version()["gitVersion"].clone();
    let info = json!({"title": "Kubernetes", "version": version});
    Ok(respond::json(
        200,
        &json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {}}),
    ))
}

fn base(facts: &Facts) -> String {
    if facts.group.is_empty() {
        format!("/api/{}", facts.version)
    } else {
        format!("/apis/{}/{}", facts.group, facts.version)
    }
}

fn describe(facts: &Facts, paths: &mut Map<String, Value>) {
    let scope = if facts.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("{}{scope}/{}", base(facts), facts.plural);
    let kind = json!({"group": facts.group, "version": facts.version, "kind": facts.kind});
    let operation = |action: &str, parameters: &[&str]| {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
            .collect();
        json!({
            "parameters": parameters, "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
        })
    };
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    let read = [
        "labelSelector",
        "fieldSelector",
        "resourceVersion",
        "watch",
        "allowWatchBookmarks",
    ];
    paths.insert(
        collection.clone(),
        json!({"get": operation("list", &read), "post": operation("post", &write),
               "delete": operation("deletecollection", &read)}),
    );
    let one = json!({
        "get": operation("get", &[]), "put": operation("put", &write), "patch": operation("patch", &write),
        "delete": operation("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
    });
    if facts.status {
        let mut status = one.clone();
        if let Some(map) = status.as_object_mut() {
            map.remove("delete");
        }
        paths.insert(format!("{collection}/{{name}}/status"), status);
    }
    paths.insert(format!("{collection}/{{name}}"), one);
}
