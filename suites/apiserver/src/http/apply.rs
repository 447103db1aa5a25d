//! PATCH with `application/apply-patch+yaml`: server-side apply.

use hyper::Response;
use serde_json::Value;

use super::{Api, ObjectRequest, read::shown};
use crate::{
    kinds::{Kind, decode},
    respond::Body,
    server_side_apply::{self, Manager, Operation},
    status::{FieldError, Status},
    store::{WriteOptions, expect_name, now},
};

/// The media type of configurations.
pub(super) const MEDIA_TYPE: &str = "application/apply-patch+yaml";
/// Longest name of a manager, in bytes.
const LONGEST_MANAGER: usize = 128;
/// Manager of a client without a name.
const UNKNOWN: &str = "unknown";

impl Api {
    pub(super) fn apply(&self, request: &ObjectRequest, sent: &[u8]) -> Result<Response<Body>, Status> {
        let absent = request.target.subresource.is_none() && self.store.get(&request.target.key()).is_err();
        let first = self.apply_once(request, sent, absent);
        // Another client has created or deleted it meanwhile: try once more.
        match first.as_ref().map_err(Status::reason) {
            Err("AlreadyExists") if absent => self.apply_once(request, sent, false),
            Err("NotFound") if !absent && request.target.subresource.is_none() => {
                self.apply_once(request, sent, true)
            }
            _ => first,
        }
    }

    fn apply_once(
        &self,
        request: &ObjectRequest,
        sent: &[u8],
        absent: bool,
    ) -> Result<Response<Body>, Status> {
        let (target, key) = (&request.target, request.target.key());
        let kind = target.kind;
        let name = request.query.get("fieldManager");
        if name.is_empty() {
            let why = "is required for apply patch";
            return Err(patch_options(FieldError::required("fieldManager", why)));
        }
        let manager = Manager::new(Operation::Apply, request.manager_name()?, kind, request.part());
        let mut config = configuration(kind, sent)?;
        expect_name(&key, &config)?;
        let options = &WriteOptions {
            manager: None,
            ..request.write_options()?
        };
        let force = request.query.flag("force");
        let (code, written) = if absent {
            if let Some(uid) = config["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
                let info = kind.info();
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Status::conflict(info.group, info.plural, &key.name, &why));
            }
            // The object is absent, so its version has no meaning.
            if let Some(meta) = config["metadata"].as_object_mut() {
                meta.remove("resourceVersion");
            }
            let object = server_side_apply::applied_new(kind, &config, &manager, &now())?;
            (201, self.store.create(kind, &key.namespace, object, options)?)
        } else {
            let written = self.store.update(&key, request.part(), options, |live| {
                let merged = server_side_apply::applied(kind, live, &config, &manager, force, &now())?;
                decode(kind, merged).map(|decoded| decoded.object)
            })?;
            (200, written)
        };
        shown(request, code, &written)
    }
}

impl ObjectRequest {
    /// The manager: `fieldManager`, or the first word of the User-Agent.
    pub(super) fn manager_name(&self) -> Result<String, Status> {
        let name = self.query.get("fieldManager");
        if name.len() > LONGEST_MANAGER {
            return Err(patch_options(FieldError::too_long(
                "fieldManager",
                LONGEST_MANAGER,
            )));
        }
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        let agent = self.headers.get(hyper::header::USER_AGENT);
        let agent = agent.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let word: String = agent
            .split('/')
            .next()
            .unwrap_or_default()
            .chars()
            .take(LONGEST_MANAGER)
            .collect();
        Ok(if word.is_empty() { UNKNOWN.to_owned() } else { word })
    }
}

/// The refusal of an option of a patch.
pub(super) fn patch_options(error: FieldError) -> Status {
    Status::invalid("meta.k8s.io", "PatchOptions", "", &[error])
}

/// A configuration, in YAML or in JSON, which is YAML.
fn configuration(kind: Kind, sent: &[u8]) -> Result<Value, Status> {
    let unreadable = |error: String| Status::bad_request(format!("error decoding YAML: {error}"));
    let config: Value = match serde_json::from_slice(sent) {
        Ok(config) => config,
        Err(_) => serde_saphyr::from_slice(sent).map_err(|error| unreadable(error.to_string()))?,
    };
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    let info = kind.info();
    if text("apiVersion") != info.api_version() || text("kind") != info.kind {
        let version = text("apiVersion");
        // Upstream shows a group in front, even if there is none.
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(Status::bad_request(format!(
            "invalid object type: {slash}{version}, Kind={}",
            text("kind")
        )));
    }
    if !config["metadata"]["managedFields"].is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let decoded = decode(kind, config)?;
    match decoded.unknown.first() {
        Some(path) => {
            let why = format!(".{path}: field not declared in schema");
            Err(server_side_apply::untyped(kind, &decoded.object, &why))
        }
        None => Ok(decoded.object),
    }
}
