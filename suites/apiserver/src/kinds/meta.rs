//! Checks of ObjectMeta (`apimachinery/pkg/api/validation/objectmeta.go`).

use serde_json::Value;

use super::{Kind, names};
use crate::status::FieldError;

/// All annotations of an object together, keys and values.
const ANNOTATION_BYTES: usize = 256 << 10;

/// Finalizers of core kinds that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

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
            _ => names::dns_subdomain,
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
    check_finalizers(kind, meta, &mut errors);
    check_owners(meta, &mut errors);
    if let Some(old) = old
        && !old["metadata"]["deletionTimestamp"].is_null()
    {
        let kept = old["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let added: Vec<String> = meta["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| !kept.contains(f))
            .map(ToString::to_string)
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    errors
}

fn check_finalizers(kind: Kind, meta: &Value, errors: &mut Vec<FieldError>) {
    for (index, finalizer) in meta["finalizers"].as_array().into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        for why in names::qualified_name(text) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, why));
        }
        if kind.info().group.is_empty() && !text.contains('/') && !STANDARD_FINALIZERS.contains(&text) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                finalizer,
                why,
            ));
        }
    }
}

fn check_owners(meta: &Value, errors: &mut Vec<FieldError>) {
    const EMPTY: &str = "must not be empty";
    let needed = [
        ("apiVersion", "version must not be empty"),
        ("kind", EMPTY),
        ("name", EMPTY),
        ("uid", EMPTY),
    ];
    for owner in meta["ownerReferences"].as_array().into_iter().flatten() {
        for (field, why) in needed {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let at = format!("metadata.ownerReferences.{field}");
                errors.push(FieldError::invalid(at, &"".into(), why));
            }
        }
    }
}
