//! ConfigMap, Secret, ServiceAccount and Lease.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::names;
use crate::status::FieldError;

/// All data of one ConfigMap or Secret (`MaxSecretSize`), in bytes.
const MOST_BYTES: usize = 1 << 20;
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

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

pub(super) fn check_config_map(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let keys = |field: &str| new[field].as_object().into_iter().flatten();
    for (key, _) in keys("data") {
        let at = format!("data[{key}]");
        check_key(&at, key, errors);
        if !new["binaryData"][key].is_null() {
            let why = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(at, &key.as_str().into(), why));
        }
    }
    for (key, _) in keys("binaryData") {
        check_key(&format!("binaryData[{key}]"), key, errors);
    }
    let texts = keys("data").map(|(_, value)| value.as_str().map_or(0, str::len));
    let binaries = keys("binaryData").map(|(_, value)| decoded_length(value));
    if texts.chain(binaries).sum::<usize>() > MOST_BYTES {
        // How upstream's path without a name reads.
        errors.push(FieldError::too_long("[]", MOST_BYTES));
    }
    check_immutable(new, old, &["data", "binaryData"], errors);
}

pub(super) fn check_secret(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let data = || new["data"].as_object().into_iter().flatten();
    for (key, _) in data() {
        check_key(&format!("data[{key}]"), key, errors);
    }
    if data().map(|(_, value)| decoded_length(value)).sum::<usize>() > MOST_BYTES {
        errors.push(FieldError::too_long("data", MOST_BYTES));
    }
    let required: &[&str] = match new["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        // One of them is enough.
        "kubernetes.io/basic-auth"
            if new["data"]["username"].is_null() && new["data"]["password"].is_null() =>
        {
            &["username", "password"]
        }
        "kubernetes.io/service-account-token" => {
            let account = &new["metadata"]["annotations"][SERVICE_ACCOUNT_NAME];
            if account.as_str().is_none_or(str::is_empty) {
                let at = format!("metadata.annotations[{SERVICE_ACCOUNT_NAME}]");
                errors.push(FieldError::required(at, ""));
            }
            &[]
        }
        _ => &[],
    };
    for key in required.iter().filter(|key| new["data"][**key].is_null()) {
        errors.push(FieldError::required(format!("data[{key}]"), ""));
    }
    if let Some(old) = old
        && old["type"] != new["type"]
    {
        errors.push(FieldError::invalid("type", &new["type"], "field is immutable"));
    }
    check_immutable(new, old, &["data"], errors);
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

fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}

fn check_immutable(new: &Value, old: Option<&Value>, fields: &[&str], errors: &mut Vec<FieldError>) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    for field in fields.iter().filter(|field| new.get(**field) != old.get(**field)) {
        errors.push(FieldError::forbidden(*field, IMMUTABLE));
    }
}
