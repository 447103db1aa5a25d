//! Errors as the API reports them: [`Status`], with one constructor per reason, and [`FieldError`] for what is wrong with
//! single fields. Messages are upstream's.

use std::fmt;

use hyper::StatusCode;
use serde_json::{Value, json};

/// A failure as the API reports it (`v1.Status`).
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// `metadata.continue`: how a list can be gone on with.
    next: Option<String>,
}

impl Status {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            next: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = json!({"kind": kind});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !group.is_empty() {
            details["group"] = group.into();
        }
        self.details = Some(details);
        self
    }

    /// The HTTP code that goes with it.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        self.code
    }

    /// The reason: `NotFound`, `Conflict` …
    #[must_use]
    pub fn reason(&self) -> &str {
        self.reason
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn anonymous(verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"system:anonymous\" cannot {verb} path \"{path}\"");
        let mut status = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        status.details = Some(json!({}));
        status
    }

    pub(crate) fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let full = full_resource(group, resource);
        let what = if name.is_empty() {
            full
        } else {
            format!("{full} \"{name}\"")
        };
        Self::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            format!("{what} is forbidden: {why}"),
        )
        .about(group, resource, name)
    }

    pub(crate) fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        details["causes"] = json!([{"reason": reason, "message": message, "field": field}]);
        self
    }

    pub(crate) fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", full_resource(group, resource));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(group, resource, name)
    }

    pub(crate) fn no_such_path() -> Self {
        let mut status = Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        );
        status.details = Some(json!({}));
        status
    }

    pub(crate) fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", full_resource(group, resource));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(group, resource, name)
    }

    pub(crate) fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let full = full_resource(group, resource);
        let message = format!("Operation cannot be fulfilled on {full} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(group, resource, name)
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let full = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let message = format!("{full} \"{name}\" is invalid: {list}");
        let mut status =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(group, kind, name);
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        if let Some(details) = &mut status.details {
            details["causes"] = causes.into();
        }
        status
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let mut status = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        status.details = Some(json!({}));
        status
    }

    pub(crate) fn not_acceptable(offered: &str) -> Self {
        let message = format!("only the following media types are accepted: {offered}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn unsupported_media_type(found: &str, accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}; \
             found: {found}"
        );
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    pub(crate) fn too_large(most: usize) -> Self {
        let message = format!("Request entity too large: limit is {most}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// An error that upstream returns as it is, without a reason.
    pub(crate) fn without_reason(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Fields belong to other managers. A cause is a message and a path.
    pub(crate) fn apply_conflict(message: String, causes: &[(String, String)]) -> Self {
        let causes: Vec<Value> = causes
            .iter()
            .map(|(message, field)| json!({"reason": "FieldManagerConflict", "message": message, "field": field}))
            .collect();
        let mut status = Self::new(StatusCode::CONFLICT, "Conflict", message);
        status.details = Some(json!({"causes": causes}));
        status
    }

    pub(crate) fn too_many_operations(found: usize, most: usize) -> Self {
        let message = format!("The allowed maximum operations in a JSON patch is {most}, got {found}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The history no longer has the first page's version. With this token, the list continues in the newest state.
    pub(crate) fn expired_continue(next: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                       list without the continue parameter, or use the continue token in this response to retrieve the \
                       remainder of the results. Continuing with the provided token results in an inconsistent list - \
                       objects that were created, modified, or deleted between the time the first chunk was returned and \
                       now may show up in the list.";
        let mut status = Self::new(StatusCode::GONE, "Expired", message);
        status.next = Some(next);
        status
    }

    pub(crate) fn future_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut status = Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: {message}"),
        );
        status.details = Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        status
    }

    pub(crate) fn too_many_requests() -> Self {
        let message = "too many requests, please try again later";
        let mut status = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        status.details = Some(json!({"retryAfterSeconds": 1}));
        status
    }

    pub(crate) fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    pub(crate) fn timed_out() -> Self {
        let message = "request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// `Retry-After`, in seconds.
    pub(crate) fn with_retry_after(mut self, seconds: Option<u32>) -> Self {
        self.details = seconds.map(|seconds| json!({"retryAfterSeconds": seconds}));
        self
    }

    /// A kubelet that does not answer.
    pub(crate) fn dialing_failed(why: impl fmt::Display) -> Self {
        let message = format!("error dialing backend: {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// A pod that is proxied to does not answer.
    pub(crate) fn unreachable_service(why: impl fmt::Display) -> Self {
        let message = format!("error trying to reach service: {why}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    pub(crate) fn slow_body(limit: std::time::Duration) -> Self {
        let message = format!("the request's body did not arrive within {limit:?}");
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    }

    pub(crate) fn internal(why: impl fmt::Display) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {why}"),
        )
    }

    /// The object that goes over the wire.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = next.as_str().into();
        }
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Status {}

/// One complaint about one field (`field.Error`).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    reason: &'static str,
    field: String,
    message: String,
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

/// `endpointslices.discovery.k8s.io`, `services`.
fn full_resource(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}
