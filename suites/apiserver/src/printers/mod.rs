//! Tables: what `kubectl get` prints (`pkg/printers/internalversion/printers.go`).
//!
//! `columns` names them, `cluster`, `config`, `pod` and `service` fill the cells, `age` formats durations.

mod age;
mod cluster;
mod columns;
mod config;
mod pod;
mod service;

use serde_json::{Value, json};

use crate::kinds::Kind;

/// How much of each object comes with its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

/// A `meta.k8s.io/v1.Table` of objects of one kind.
pub(crate) fn table(
    kind: Kind,
    objects: &[Value],
    version: &str,
    include: IncludeObject,
    headers: bool,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({"cells": cells(kind, object)});
            match include {
                IncludeObject::None => row["object"] = Value::Null,
                IncludeObject::Metadata => {
                    row["object"] = json!({
                        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                        "metadata": object["metadata"],
                    });
                }
                IncludeObject::Object => row["object"] = object.clone(),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "columnDefinitions": if headers { columns::definitions(kind) } else { Value::Null },
        "rows": rows,
    })
}

fn cells(kind: Kind, object: &Value) -> Vec<String> {
    match kind {
        Kind::ConfigMap => config::config_map_cells(object),
        Kind::Lease => config::lease_cells(object),
        Kind::Secret => config::secret_cells(object),
        Kind::ServiceAccount => config::service_account_cells(object),
        Kind::EndpointSlice => service::slice_cells(object),
        Kind::Event => cluster::event_cells(object),
        Kind::Namespace => cluster::namespace_cells(object),
        Kind::Node => cluster::node_cells(object),
        Kind::Pod => pod::cells(object),
        Kind::Service => service::cells(object),
        Kind::ServiceCidr => cluster::service_cidr_cells(object),
    }
}

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn or<'a>(found: &'a str, otherwise: &'a str) -> String {
    if found.is_empty() {
        otherwise.to_owned()
    } else {
        found.to_owned()
    }
}

fn name_and_age(object: &Value) -> (String, String) {
    (
        text(&object["metadata"]["name"]),
        age::since(&object["metadata"]["creationTimestamp"]),
    )
}
