//! ConfigMap, Secret, ServiceAccount and Lease.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::names;
use crate::status::FieldError;

/// `stringData` is only written; it is read as `data`.
pub(super) fn prepare_secret(secret: &mut Value) {
    let Some(map) = secret.as_object_mut() else { return };
    if let Some(Value::Object(texts)) = map.remove("stringData") {
        let data = map.entry("data").or_insert_with(|| json!({}));
        for (key, text) in texts {
            data[key] = BASE64_STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
    let kind = map.entry("type").or_insert(Value::Null);
    if kind.is_null() || *kind == "" {
        *kind = "Opaque".into();
    }
}

pub(super) fn prepare_lease(lease: &mut Value) {
    if !lease["spec"].is_object() {
        lease["spec"] = json!({});
    }
}

pub(super) fn check_config_map(map: &Value, errors: &mut Vec<FieldError>) {
    let keys = |field: &str| map[field].as_object().into_iter().flatten();
    for (key, _) in keys("data") {
        let at = format!("data[{key}]");
        check_key(&at, key, errors);
        if !map["binaryData"][key].is_null() {
            let why = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(at, &key.as_str().into(), why));
        }
    }
    for (key, _) in keys("binaryData") {
        check_key(&format!("binaryData[{key}]"), key, errors);
    }
}

pub(super) fn check_secret(secret: &Value, errors: &mut Vec<FieldError>) {
    for (key, _) in secret["data"].as_object().into_iter().flatten() {
        check_key(&format!("data[{key}]"), key, errors);
    }
}

pub(super) fn check_lease(lease: &Value, errors: &mut Vec<FieldError>) {
    let rows = [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ];
    for (field, least, why) in rows {
        let found = &lease["spec"][field];
        if found.as_i64().is_some_and(|number| number < least) {
            errors.push(FieldError::invalid(format!("spec.{field}"), found, why));
        }
    }
}

fn check_key(at: &str, key: &str, errors: &mut Vec<FieldError>) {
    for why in names::config_key(key) {
        errors.push(FieldError::invalid(at, &key.into(), why));
    }
}
