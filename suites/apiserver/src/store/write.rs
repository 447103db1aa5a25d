//! Create and update.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::{Key, Object, Scope, State, Store, delete, history::Change};
use crate::{
    config::Config,
    kinds::{self, Kind, Part},
    selector::Selector,
    server_side_apply::{self, Manager},
    status::{FieldError, Status},
};

/// Length of what `generateName` appends, and its alphabet (`k8s.io/apimachinery/pkg/util/rand`).
const SUFFIX: usize = 5;
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Attempts to draw a name that is free.
const SUFFIX_TRIES: usize = 8;
/// Most bytes of a `generateName` that are kept.
const GENERATE_PREFIX: usize = 63 - SUFFIX;

/// Options of a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Owner of the written fields. `None` leaves managed fields as they are in the object.
    pub(crate) manager: Option<Manager>,
    /// Respond as if it were stored, but store nothing.
    pub(crate) dry_run: bool,
}

/// Now, as the API writes times.
pub(crate) fn now() -> Value {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
        .into()
}

impl Store {
    /// Creates an object from a decoded body; `namespace` is the path's.
    pub(crate) fn create(
        &self,
        kind: Kind,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, Status> {
        let info = kind.info();
        adopt_namespace(kind, namespace, &mut object)?;
        let meta = &mut object["metadata"];
        if meta["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            return Err(Status::without_reason(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if let Some(meta) = meta.as_object_mut() {
            for field in kinds::reserved_metadata() {
                meta.remove(field);
            }
            meta.remove("resourceVersion");
        }
        let mut state = self.lock();
        if info.namespaced {
            state.check_namespace(
                kind,
                namespace,
                object["metadata"]["name"].as_str().unwrap_or_default(),
            )?;
        }
        let generate = object["metadata"]["generateName"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() && !generate.is_empty() {
            object["metadata"]["name"] = state.draw_name(kind, namespace, &generate)?.into();
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
        object["metadata"]["creationTimestamp"] = now();
        if let Some(manager) = &options.manager {
            let mut defaulted = kinds::defaulted(kind, &object);
            server_side_apply::created(kind, &mut defaulted, manager, &now());
            adopt_managers(&mut object, &defaulted);
        }
        if info.generation {
            object["metadata"]["generation"] = 1.into();
        }
        kinds::prepare_create(kind, &mut object, self.config());
        let invalid = |errors: Vec<_>| Status::invalid(info.group, info.kind, &name, &errors);
        state
            .allocate(kind, &mut object, None, self.config())
            .map_err(invalid)?;
        let errors = kinds::check(kind, &object, None);
        let key = Key::new(kind, namespace, &name);
        let refused = if !errors.is_empty() {
            Some(Err(invalid(errors)))
        } else if state.objects.contains_key(&key) {
            Some(Err(Status::already_exists(info.group, info.plural, &name)))
        } else if options.dry_run {
            Some(Ok(()))
        } else {
            None
        };
        if let Some(refused) = refused {
            state.release(kind, &object);
            return refused.map(|()| unstored(object));
        }
        let created = state.commit(key.clone(), object);
        state.collect_without_owners(&key);
        if kind == Kind::Event {
            state.bound_events(self.config().event_objects);
        }
        self.publish(&state);
        Ok(created)
    }

    /// Replaces an object by the result of `change`, which must be decoded. `change` runs under the lock, so a patch applies to
    /// the version that it was computed on.
    pub(crate) fn update(
        &self,
        key: &Key,
        part: Part,
        options: &WriteOptions,
        change: impl FnOnce(&Value) -> Result<Value, Status>,
    ) -> Result<Arc<Object>, Status> {
        let (kind, info) = (key.kind, key.kind.info());
        let mut state = self.lock();
        let old = Arc::clone(state.get(key)?);
        let mut new = change(&old.value)?;
        adopt_namespace(kind, &key.namespace, &mut new)?;
        expect_name(key, &new)?;
        check_preconditions(key, &old, &new["metadata"])?;
        keep_reserved(&mut new, &old.value);
        if let Some(manager) = &options.manager {
            let mut defaulted = kinds::defaulted(kind, &new);
            server_side_apply::updated(kind, &old.value, &mut defaulted, manager, &now());
            adopt_managers(&mut new, &defaulted);
        }
        kinds::prepare_update(kind, &mut new, &old.value, part, self.config());
        if info.generation && kinds::next_generation(kind, &new, &old.value) {
            let generation = old.meta()["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
        let invalid = |errors: Vec<_>| Status::invalid(info.group, info.kind, &key.name, &errors);
        state
            .allocate(kind, &mut new, Some(&old.value), self.config())
            .map_err(invalid)?;
        let errors = kinds::check(kind, &new, Some(&old.value));
        new["metadata"]["resourceVersion"] = old.version.to_string().into();
        if !errors.is_empty() || options.dry_run {
            state.release(kind, &new);
            state.hold(kind, &old.value);
            return if errors.is_empty() {
                Ok(unstored(new))
            } else {
                Err(invalid(errors))
            };
        }
        // A write without a change keeps the version and makes no event.
        if new == old.value {
            return Ok(old);
        }
        if kind != Kind::Namespace && delete::ends(&new) {
            // Upstream removes it instead of writing it, so its last state is the one before.
            let gone = state.remove(key, &old);
            self.publish(&state);
            return Ok(Object::new(new, gone.version));
        }
        let updated = state.commit(key.clone(), new);
        state.finish_if_released(key, &updated);
        if old.meta().get("ownerReferences") != updated.meta().get("ownerReferences") {
            state.collect_without_owners(key);
        }
        self.publish(&state);
        Ok(updated)
    }
}

impl State {
    /// Writes one version of an object.
    pub(super) fn commit(&mut self, key: Key, value: Value) -> Arc<Object> {
        self.version += 1;
        let version = self.version;
        let new = Object::new(value, version);
        let old = self.objects.insert(key.clone(), Arc::clone(&new));
        self.dependents
            .follow(&key, old.as_ref().map(|old| &old.value), Some(&new.value));
        self.history.push(Change {
            key,
            version,
            at: Instant::now(),
            old,
            new: Some(Arc::clone(&new)),
            last: None,
        });
        new
    }

    /// Removes an object; its last state, at the version of the removal.
    pub(super) fn commit_removal(&mut self, key: Key, last: Value) -> Arc<Object> {
        self.version += 1;
        let version = self.version;
        let last = Object::new(last, version);
        let old = self.objects.remove(&key);
        self.dependents
            .follow(&key, old.as_ref().map(|old| &old.value), None);
        self.history.push(Change {
            key,
            version,
            at: Instant::now(),
            old,
            new: None,
            last: Some(Arc::clone(&last)),
        });
        last
    }

    /// Assigns a service's addresses and ports. Other kinds have none.
    fn allocate(
        &mut self,
        kind: Kind,
        new: &mut Value,
        old: Option<&Value>,
        config: &Config,
    ) -> Result<(), Vec<FieldError>> {
        if kind != Kind::Service {
            return Ok(());
        }
        let errors = kinds::check_addresses(new, old, config);
        if errors.is_empty() {
            self.addresses.allocate(new, old)
        } else {
            Err(errors)
        }
    }

    fn release(&mut self, kind: Kind, object: &Value) {
        if kind == Kind::Service {
            self.addresses.release(object);
        }
    }

    fn hold(&mut self, kind: Kind, object: &Value) {
        if kind == Kind::Service {
            self.addresses.reserve(object);
        }
    }

    fn check_namespace(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Status> {
        let found = self.get(&Key::new(Kind::Namespace, "", namespace))?;
        if found.is_terminating() {
            let info = kind.info();
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(Status::forbidden(info.group, info.plural, name, &why).with_cause(
                "NamespaceTerminating",
                &format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    fn draw_name(&self, kind: Kind, namespace: &str, prefix: &str) -> Result<String, Status> {
        let cut = prefix
            .char_indices()
            .nth(GENERATE_PREFIX)
            .map_or(prefix.len(), |(at, _)| at);
        for _ in 0..SUFFIX_TRIES {
            let suffix = (0..SUFFIX).map(|_| {
                let at = rand::random_range(0..SUFFIX_LETTERS.len());
                char::from(SUFFIX_LETTERS[at])
            });
            let name: String = prefix[..cut].chars().chain(suffix).collect();
            if !self.objects.contains_key(&Key::new(kind, namespace, &name)) {
                return Ok(name);
            }
        }
        let info = kind.info();
        Err(Status::already_exists(info.group, info.plural, prefix))
    }

    /// Removes the Event that was written longest ago if there are too many.
    fn bound_events(&mut self, most: usize) {
        let all = Scope {
            kind: Kind::Event,
            namespace: None,
            selector: Selector::default(),
        };
        let oldest = self.range(&all).min_by_key(|(_, object)| object.version);
        if let Some((key, object)) = oldest
            && self.range(&all).count() > most
        {
            let (key, last) = (key.clone(), object.value.clone());
            self.commit_removal(key, last);
        }
    }
}

/// An object that was not stored, with the version that it had (none, if new).
fn unstored(value: Value) -> Arc<Object> {
    let json = value.to_string().into();
    Arc::new(Object {
        value,
        json,
        version: 0,
    })
}

/// Copies managed fields to an object.
fn adopt_managers(object: &mut Value, owned: &Value) {
    let field = "managedFields";
    match (object["metadata"].as_object_mut(), owned["metadata"].get(field)) {
        (Some(meta), Some(list)) => drop(meta.insert(field.to_owned(), list.clone())),
        (Some(meta), None) => drop(meta.remove(field)),
        (None, _) => {}
    }
}

fn adopt_namespace(kind: Kind, namespace: &str, object: &mut Value) -> Result<(), Status> {
    let found = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if !kind.info().namespaced {
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("namespace");
        }
        return Ok(());
    }
    if !found.is_empty() && found != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object["metadata"]["namespace"] = namespace.into();
    Ok(())
}

/// The name in a body that is written to a path with a name.
pub(crate) fn expect_name(key: &Key, object: &Value) -> Result<(), Status> {
    match object["metadata"]["name"].as_str() {
        Some(name) if name == key.name => Ok(()),
        None | Some("") => Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            key.name
        ))),
        Some(other) => Err(Status::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({})",
            key.name
        ))),
    }
}

/// Refuses a write for another version, or for another object of the same name.
fn check_preconditions(key: &Key, old: &Object, asked: &Value) -> Result<(), Status> {
    let info = key.kind.info();
    let conflict = |why: &str| Err(Status::conflict(info.group, info.plural, &key.name, why));
    let current = old.meta()["uid"].as_str().unwrap_or_default();
    match asked["uid"].as_str() {
        Some(uid) if !uid.is_empty() && uid != current => {
            return conflict(&format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {current}"
            ));
        }
        _ => {}
    }
    match asked["resourceVersion"].as_str() {
        Some(version) if !version.is_empty() && version != old.version.to_string() => conflict(
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        _ => Ok(()),
    }
}

fn keep_reserved(new: &mut Value, old: &Value) {
    let Some(meta) = new["metadata"].as_object_mut() else {
        return;
    };
    for field in kinds::reserved_metadata() {
        match old["metadata"].get(field) {
            Some(value) => drop(meta.insert(field.to_owned(), value.clone())),
            None => drop(meta.remove(field)),
        }
    }
    if let Some(value) = old["metadata"].get("generateName") {
        meta.insert("generateName".to_owned(), value.clone());
    }
}
