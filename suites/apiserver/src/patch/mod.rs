//! PATCH: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch.
//!
//! `strategic` merges, `order` puts merged lists in order, `schema` knows which lists merge by which key.

mod order;
mod schema;
mod strategic;

pub(crate) use schema::{ListMerge, list_merge};

use json_patch::PatchOperation;
use serde_json::Value;

use crate::{kinds::Kind, status::Status};

/// Operations in one JSON patch (upstream's `maxJSONPatchOperations`).
const MOST_OPERATIONS: usize = 10_000;
/// Most bytes of JSON that a JSON patch may copy in total: copies of copies grow exponentially.
const MOST_COPIED: usize = 3 << 20;

/// The formats this server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
}

/// A patch, parsed.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

impl PatchType {
    /// The format of a media type.
    ///
    /// # Errors
    /// 415 for any other.
    pub(crate) fn of(media_type: &str) -> Result<Self, Status> {
        const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, \
                                application/strategic-merge-patch+json, application/apply-patch+yaml";
        match media_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            other => Err(Status::unsupported_media_type(other, ACCEPTED)),
        }
    }
}

/// Parses a patch's body.
///
/// # Errors
/// 400 if it is no patch of this type; 413 if it has too many operations.
pub(crate) fn parse(patch_type: PatchType, sent: &[u8]) -> Result<Patch, Status> {
    let unreadable = |error| Status::bad_request(format!("error decoding patch: {error}"));
    let object = |sent| {
        let value: Value = serde_json::from_slice(sent).map_err(unreadable)?;
        if value.is_object() {
            Ok(value)
        } else {
            Err(Status::bad_request(
                "error decoding patch: expected a JSON object",
            ))
        }
    };
    match patch_type {
        PatchType::Merge => object(sent).map(Patch::Merge),
        PatchType::Strategic => object(sent).map(Patch::Strategic),
        PatchType::Json => {
            let patch: json_patch::Patch = serde_json::from_slice(sent).map_err(unreadable)?;
            if patch.0.len() > MOST_OPERATIONS {
                return Err(Status::too_many_operations(patch.0.len(), MOST_OPERATIONS));
            }
            Ok(Patch::Json(patch))
        }
    }
}

/// Applies a patch to an object.
///
/// # Errors
/// 422 if it does not apply; 400 if its directives are invalid.
pub(crate) fn apply(kind: Kind, patch: &Patch, current: &Value) -> Result<Value, Status> {
    let mut patched = current.clone();
    match patch {
        Patch::Merge(patch) => json_patch::merge(&mut patched, patch),
        Patch::Strategic(patch) => {
            patched = strategic::apply(kind, current, patch).map_err(Status::bad_request)?;
        }
        Patch::Json(patch) => {
            let mut copied = 0;
            for operation in &patch.0 {
                if let PatchOperation::Copy(copy) = operation {
                    let source = patched.pointer(copy.from.as_str()).map(ToString::to_string);
                    copied += source.map_or(0, |text| text.len());
                    if copied > MOST_COPIED {
                        return Err(Status::unprocessable(format!(
                            "the copies of this patch are larger than {MOST_COPIED} bytes"
                        )));
                    }
                }
                json_patch::patch(&mut patched, std::slice::from_ref(operation)).map_err(|error| {
                    Status::unprocessable(format!(
                        "the server rejected our request due to an error in our request: {error}"
                    ))
                })?;
            }
        }
    }
    Ok(patched)
}
