//! Complaints about fields (`apimachinery/pkg/util/validation/field`).

use std::fmt;

use serde_json::Value;

/// One complaint about one field (`field.Error`).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    pub(super) reason: &'static str,
    pub(super) field: String,
    pub(super) message: String,
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".into()
        } else {
            format!("Required value: {detail}")
        };
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message,
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        let message = format!("Invalid value: {}: {detail}", shown(value));
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message,
        }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {}", shown(value));
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message,
        }
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported
            .iter()
            .map(|s| format!("{s:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        let message = format!("Unsupported value: {}: supported values: {list}", shown(value));
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message,
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {detail}"),
        }
    }

    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self {
            reason: "FieldValueTooLong",
            field: field.into(),
            message,
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, found: usize, most: usize) -> Self {
        let message = format!("Too many: {found}: must have at most {most} items");
        Self {
            reason: "FieldValueTooMany",
            field: field.into(),
            message,
        }
    }
}

fn shown(value: &Value) -> String {
    value.to_string()
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
