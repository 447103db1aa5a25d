//! OpenAPI v3 with the paths and parameters of each kind, and without schemas.
//!
//! kubectl learns from it that the server validates fields itself (`fieldValidation` of the PATCH operation). It computes
//! three-way patches from its built-in types.

use hyper::Response;
use serde_json::{Map, Value, json};

use crate::{
    discovery,
    kinds::{Kind, KindInfo},
    respond::{self, Body},
    status::Status,
};

/// The index, or the document of `api/v1` or `apis/GROUP/v1`.
///
/// # Errors
/// 404 for any other document.
pub(crate) fn answer(document: Option<&str>) -> Result<Response<Body>, Status> {
    let info = || Kind::ALL.into_iter().map(Kind::info);
    let Some(document) = document else {
        let entry = |info: &KindInfo| {
            let name = base(info);
            let name = name.trim_start_matches('/').to_owned();
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{name}")});
            (name, url)
        };
        let paths: Map<String, Value> = info().map(entry).collect();
        return Ok(respond::json(200, &json!({"paths": paths})));
    };
    let mut paths = Map::new();
    for info in info().filter(|info| base(info).trim_start_matches('/') == document) {
        describe(info, &mut paths);
    }
    if paths.is_empty() {
        return Err(Status::no_such_path());
    }
    let version = discovery::version()["gitVersion"].clone();
    let title = json!({"title": "Kubernetes", "version": version});
    Ok(respond::json(
        200,
        &json!({"openapi": "3.0.0", "info": title, "paths": paths, "components": {}}),
    ))
}

fn base(info: &KindInfo) -> String {
    if info.group.is_empty() {
        format!("/api/{}", info.version)
    } else {
        format!("/apis/{}/{}", info.group, info.version)
    }
}

fn describe(info: &KindInfo, paths: &mut Map<String, Value>) {
    let scope = if info.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("{}{scope}/{}", base(info), info.plural);
    let kind = json!({"group": info.group, "version": info.version, "kind": info.kind});
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
    if info.status {
        let mut status = one.clone();
        if let Some(map) = status.as_object_mut() {
            map.remove("delete");
        }
        paths.insert(format!("{collection}/{{name}}/status"), status);
    }
    paths.insert(format!("{collection}/{{name}}"), one);
}
