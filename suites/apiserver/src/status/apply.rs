//! How server-side apply says no.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::Status;
use crate::kinds::Kind;

impl Status {
    /// Fields belong to others; causes are a message and a path each.
    pub(crate) fn apply_conflict(message: String, causes: &[(String, String)]) -> Self {
        let causes: Vec<Value> = causes
            .iter()
            .map(|(message, field)| json!({"reason": "FieldManagerConflict", "message": message, "field": field}))
            .collect();
        let mut status = Self::new(StatusCode::CONFLICT, "Conflict", message);
        status.details = Some(json!({"causes": causes}));
        status
    }

    /// A configuration that does not fit its kind.
    pub(crate) fn untyped(kind: Kind, config: &Value, why: &str) -> Self {
        let (facts, meta) = (kind.facts(), &config["metadata"]);
        let text = |field: &str| meta[field].as_str().unwrap_or_default();
        let message = format!(
            "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {why}",
            text("namespace"),
            text("name"),
            facts.group,
            facts.version,
            facts.kind
        );
        // Upstream returns the error as it is, without a reason.
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }
}
