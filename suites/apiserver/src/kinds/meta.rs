//! Checks of ObjectMeta (`apimachinery/pkg/api/validation/objectmeta.go`).

use serde_json::Value;

use super::{Kind, names};
use crate::status::FieldError;

/// All annotations of an object together, keys and values.
const ANNOTATION_BYTES: usize = 256 << 10;

/// Fields that the server alone writes; a client's values are replaced by the stored ones.
pub(crate) fn reserved_metadata() -> [&'static str; 6] {
    [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ]
}

pub(super) fn check(kind: Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let meta = &new["metadata"];
    if old.is_none() {
        let rule = match kind {
            Kind::Namespace | Kind::Service => names::dns_label,
            Kind::EndpointSlice | Kind::Node | Kind::Pod | Kind::Event => names::dns_subdomain,
        };
        let name = &meta["name"];
        match name.as_str() {
            None | Some("") => errors.push(FieldError::required(
                "metadata.name",
                "name or generateName is required",
            )),
            Some(text) => {
                errors.extend(
                    rule(text)
                        .iter()
                        .map(|why| FieldError::invalid("metadata.name", name, why)),
                );
            }
        }
    }
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        let key_value = Value::from(key.as_str());
        errors.extend(
            names::qualified_name(key)
                .iter()
                .map(|why| FieldError::invalid("metadata.labels", &key_value, why)),
        );
        let wrong = names::label_value(value.as_str().unwrap_or_default());
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid("metadata.labels", value, why)),
        );
    }
    let mut total = 0;
    for (key, value) in meta["annotations"].as_object().into_iter().flatten() {
        let lower = key.to_lowercase();
        let key_value = Value::from(key.as_str());
        errors.extend(
            names::qualified_name(&lower)
                .iter()
                .map(|why| FieldError::invalid("metadata.annotations", &key_value, why)),
        );
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATION_BYTES {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATION_BYTES));
    }
    for finalizer in meta["finalizers"].as_array().into_iter().flatten() {
        let wrong = names::qualified_name(finalizer.as_str().unwrap_or_default());
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid("metadata.finalizers", finalizer, why)),
        );
    }
    if let Some(old) = old
        && !old["metadata"]["deletionTimestamp"].is_null()
    {
        let kept = old["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let added: Vec<&Value> = meta["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| !kept.contains(f))
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    errors
}
