//! Create, update, patch, delete.

use hyper::Response;
use serde_json::{Value, json};

use super::{
    Api, ObjectRequest,
    apply::{self, patch_options},
    body,
    page::Page,
    query::FieldValidation,
    read::{listing, shown},
};
use crate::{
    kinds::{Kind, Part, decode},
    patch::{self, PatchType},
    respond::{self, Body},
    server_side_apply::{Manager, Operation},
    status::{FieldError, Status},
    store::{DeleteOptions, Deleted, Listed, WriteOptions},
};

impl Api {
    pub(super) fn create(&self, request: &ObjectRequest, sent: &[u8]) -> Result<Response<Body>, Status> {
        let target = &request.target;
        if target.kind.info().namespaced && target.namespace.is_empty() {
            return Err(Status::method_not_allowed());
        }
        let mut warnings = Vec::new();
        let object = request.decode(request.parse(sent)?, &mut warnings)?;
        let created = self
            .store
            .create(target.kind, &target.namespace, object, &request.write_options()?)?;
        let mut response = shown(request, 201, &created)?;
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    pub(super) fn replace(&self, request: &ObjectRequest, sent: &[u8]) -> Result<Response<Body>, Status> {
        let mut warnings = Vec::new();
        let object = request.decode(request.parse(sent)?, &mut warnings)?;
        let options = &request.write_options()?;
        let updated = self
            .store
            .update(&request.target.key(), request.part(), options, |_| Ok(object))?;
        let mut response = shown(request, 200, &updated)?;
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    pub(super) fn patch(&self, request: &ObjectRequest, sent: &[u8]) -> Result<Response<Body>, Status> {
        if request.content_type() == apply::MEDIA_TYPE {
            return self.apply(request, sent);
        }
        if !request.query.get("force").is_empty() {
            let why = "may not be specified for non-apply patch";
            return Err(patch_options(FieldError::forbidden("force", why)));
        }
        let patch_type = PatchType::of(request.content_type())?;
        let patch = patch::parse(patch_type, sent)?;
        let mut warnings = Vec::new();
        let kind = request.target.kind;
        let options = &request.write_options()?;
        let updated = self
            .store
            .update(&request.target.key(), request.part(), options, |current| {
                let patched = patch::apply(kind, &patch, current)?;
                request.decode(patched, &mut warnings)
            })?;
        let mut response = shown(request, 200, &updated)?;
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Assigns a pod to a node.
    pub(super) fn bind(&self, request: &ObjectRequest, sent: &[u8]) -> Result<Response<Body>, Status> {
        let binding = request.parse(sent)?;
        if binding["metadata"]["name"].as_str() != request.target.name.as_deref() {
            return Err(Status::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        self.store
            .bind(&request.target.key(), node, &request.write_options()?)?;
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        });
        Ok(respond::json(201, &status))
    }

    pub(super) fn delete(&self, request: &ObjectRequest, sent: &[u8]) -> Result<Response<Body>, Status> {
        let options = request.delete_options(sent)?;
        let key = request.target.key();
        match self.store.delete(&key, &options)? {
            Deleted::Pending(object) => shown(request, 200, &object),
            Deleted::Gone(object) if key.kind.info().delete_returns_object => shown(request, 200, &object),
            Deleted::Gone(object) => {
                let info = key.kind.info();
                let mut details = json!({"name": key.name, "kind": info.plural, "uid": object.meta()["uid"]});
                if !info.group.is_empty() {
                    details["group"] = info.group.into();
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": details,
                });
                Ok(respond::json(200, &status))
            }
        }
    }

    pub(super) fn delete_collection(
        &self,
        request: &ObjectRequest,
        sent: &[u8],
    ) -> Result<Response<Body>, Status> {
        let target = &request.target;
        let everywhere = target.kind.info().namespaced && target.namespace.is_empty();
        if everywhere || target.kind == Kind::Namespace {
            return Err(Status::method_not_allowed());
        }
        let options = request.delete_options(sent)?;
        let objects = self.store.delete_collection(&request.scope()?, &options);
        let version = *self.store.head().borrow();
        listing(request, &Page::whole(Listed { version, objects }))
    }
}

impl ObjectRequest {
    pub(super) fn part(&self) -> Part {
        if self.target.subresource.is_some() {
            Part::Status
        } else {
            Part::Main
        }
    }

    pub(super) fn write_options(&self) -> Result<WriteOptions, Status> {
        let name = self.manager_name()?;
        Ok(WriteOptions {
            dry_run: self.query.dry_run()?,
            manager: Some(Manager::new(
                Operation::Update,
                name,
                self.target.kind,
                self.part(),
            )),
        })
    }

    fn parse(&self, sent: &[u8]) -> Result<Value, Status> {
        body::parse(self.content_type(), sent, self.target.kind.info().kind)
    }

    /// Checks types and deals with unknown fields as the request wants.
    fn decode(&self, object: Value, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let info = self.target.kind.info();
        let decoded = decode(self.target.kind, object)?;
        let complaints: Vec<String> = decoded
            .unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
        match self.query.field_validation()? {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(complaints),
            FieldValidation::Strict if complaints.is_empty() => {}
            FieldValidation::Strict => {
                return Err(Status::bad_request(format!(
                    "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                    info.kind,
                    info.version,
                    info.kind,
                    complaints.join(", ")
                )));
            }
        }
        Ok(decoded.object)
    }

    /// The options of a deletion: of the body if there is one, else of the query.
    fn delete_options(&self, sent: &[u8]) -> Result<DeleteOptions, Status> {
        let options = if sent.is_empty() {
            self.delete_query()?
        } else {
            let body = body::parse(self.content_type(), sent, "DeleteOptions")?;
            if !body.is_object() {
                return Err(Status::bad_request(
                    "couldn't get version/kind; json parse error: expected an object",
                ));
            }
            serde_json::from_value(body)
                .map_err(|error| Status::bad_request(format!("failed to read the DeleteOptions: {error}")))?
        };
        let invalid = |error| Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        match options.propagation_policy.as_deref() {
            _ if options.orphan_dependents == Some(true) => {
                let why = "dependents are always deleted in the background";
                invalid(FieldError::forbidden("orphanDependents", why))
            }
            None | Some("Background") => Ok(options),
            Some(other) => {
                let allowed = ["Background", "nil"];
                invalid(FieldError::unsupported(
                    "propagationPolicy",
                    &other.into(),
                    &allowed,
                ))
            }
        }
    }

    fn delete_query(&self) -> Result<DeleteOptions, Status> {
        let mut options = DeleteOptions::default();
        let text = self.query.get("gracePeriodSeconds");
        if !text.is_empty() {
            options.grace_period_seconds = Some(text.parse().map_err(|_| {
                Status::bad_request(format!(
                    "gracePeriodSeconds: expected a number of seconds, found {text:?}"
                ))
            })?);
        }
        if self.query.dry_run()? {
            options.dry_run = vec!["All".into()];
        }
        let policy = self.query.get("propagationPolicy");
        if !policy.is_empty() {
            options.propagation_policy = Some(policy.to_owned());
        }
        if !self.query.get("orphanDependents").is_empty() {
            options.orphan_dependents = Some(self.query.flag("orphanDependents"));
        }
        Ok(options)
    }
}
