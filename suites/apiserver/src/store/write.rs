//! Create and update.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Key, Object, State, Store, history::Change};
use crate::{
    kinds::{self, Kind, Part},
    status::Status,
};

/// Length of what `generateName` appends, and its alphabet (`k8s.io/apimachinery/pkg/util/rand`).
const SUFFIX: usize = 5;
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Names that are taken are drawn again so often.
const SUFFIX_TRIES: usize = 8;
/// What is left of a long `generateName`.
const GENERATE_PREFIX: usize = 63 - SUFFIX;

/// How a write is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Answer as if, store nothing.
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
        options: WriteOptions,
    ) -> Result<Arc<Object>, Status> {
        let facts = kind.facts();
        adopt_namespace(kind, namespace, &mut object)?;
        let meta = &mut object["metadata"];
        if meta["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            return Err(Status::version_on_create());
        }
        if let Some(meta) = meta.as_object_mut() {
            for field in kinds::reserved_metadata() {
                meta.remove(field);
            }
            meta.remove("resourceVersion");
        }
        let mut state = self.lock();
        if facts.namespaced {
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
        if facts.generation {
            object["metadata"]["generation"] = 1.into();
        }
        kinds::prepare_create(kind, &mut object, self.config());
        let errors = kinds::check(kind, &object, None, self.config());
        if !errors.is_empty() {
            return Err(Status::invalid(facts.group, facts.kind, &name, &errors));
        }
        let key = Key::new(kind, namespace, &name);
        if state.objects.contains_key(&key) {
            return Err(Status::already_exists(facts.group, facts.plural, &name));
        }
        if kind == Kind::Service {
            let allocated = state.addresses.allocate(&mut object, None);
            allocated.map_err(|errors| Status::invalid(facts.group, facts.kind, &name, &errors))?;
        }
        if options.dry_run {
            if kind == Kind::Service {
                state.addresses.release(&object);
            }
            return Ok(unstored(object));
        }
        let created = state.commit(key, Some(object));
        if kind == Kind::Event {
            state.bound_events(self.config().event_objects);
        }
        self.publish(&state);
        Ok(created)
    }

    /// Replaces an object by what `change` makes of it. `change` runs under the lock, so that a patch meets
    /// exactly the version it was computed on; it must return a decoded object.
    pub(crate) fn update(
        &self,
        key: &Key,
        part: Part,
        options: WriteOptions,
        change: impl FnOnce(&Value) -> Result<Value, Status>,
    ) -> Result<Arc<Object>, Status> {
        let (kind, facts) = (key.kind, key.kind.facts());
        let mut state = self.lock();
        let old = Arc::clone(state.get(key)?);
        let mut new = change(&old.value)?;
        adopt_namespace(kind, &key.namespace, &mut new)?;
        match new["metadata"]["name"].as_str() {
            None | Some("") => new["metadata"]["name"] = key.name.as_str().into(),
            Some(name) if name == key.name => {}
            Some(other) => {
                return Err(Status::bad_request(format!(
                    "the name of the object ({other}) does not match the name on the URL ({})",
                    key.name
                )));
            }
        }
        check_preconditions(key, &old, &new["metadata"])?;
        keep_reserved(&mut new, &old.value);
        kinds::prepare_update(kind, &mut new, &old.value, part, self.config());
        if facts.generation && kinds::next_generation(kind, &new, &old.value) {
            let generation = old.meta()["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
        let errors = kinds::check(kind, &new, Some(&old.value), self.config());
        if !errors.is_empty() {
            return Err(Status::invalid(facts.group, facts.kind, &key.name, &errors));
        }
        if kind == Kind::Service && part == Part::Main {
            let mut trial = state.addresses.clone_if(options.dry_run);
            let addresses = trial.as_mut().unwrap_or(&mut state.addresses);
            let allocated = addresses.allocate(&mut new, Some(&old.value));
            allocated.map_err(|errors| Status::invalid(facts.group, facts.kind, &key.name, &errors))?;
        }
        new["metadata"]["resourceVersion"] = old.version.to_string().into();
        if options.dry_run {
            return Ok(unstored(new));
        }
        // A write that changes nothing is no write: same version, no event.
        if new == old.value {
            return Ok(old);
        }
        let updated = state.commit(key.clone(), Some(new));
        let ended = state.finish_if_released(key, &updated);
        self.publish(&state);
        Ok(ended.unwrap_or(updated))
    }
}

impl State {
    /// Writes one change: the next version, the history, the object. `None` removes it; what is returned then
    /// is the last state at the version of its removal.
    pub(super) fn commit(&mut self, key: Key, value: Option<Value>) -> Arc<Object> {
        self.version += 1;
        let version = self.version;
        let new = value.map(|value| Object::new(value, version));
        let old = match &new {
            Some(new) => self.objects.insert(key.clone(), Arc::clone(new)),
            None => self.objects.remove(&key),
        };
        let shown = match (&new, &old) {
            (Some(new), _) => Arc::clone(new),
            (None, Some(old)) => old.restamped(version),
            (None, None) => Object::new(json!({"metadata": {}}), version),
        };
        self.history.push(Change {
            key,
            version,
            old,
            new,
        });
        shown
    }

    fn check_namespace(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Status> {
        let found = self.get(&Key::new(Kind::Namespace, "", namespace))?;
        if found.is_terminating() {
            let facts = kind.facts();
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(
                Status::forbidden(facts.group, facts.plural, name, &why).with_cause(
                    "NamespaceTerminating",
                    &format!("namespace {namespace} is being terminated"),
                    "metadata.namespace",
                ),
            );
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
        let facts = kind.facts();
        Err(Status::already_exists(facts.group, facts.plural, prefix))
    }

    /// Event objects are bounded: the one written longest ago goes.
    fn bound_events(&mut self, most: usize) {
        let events: Vec<(u64, Key)> = self
            .objects
            .iter()
            .filter(|(key, _)| key.kind == Kind::Event)
            .map(|(key, object)| (object.version, key.clone()))
            .collect();
        if events.len() > most
            && let Some((_, oldest)) = events.into_iter().min_by_key(|(version, _)| *version)
        {
            self.commit(oldest, None);
        }
    }
}

/// An answer that was never stored: the object as it would be, at the version it had (none, if new).
fn unstored(value: Value) -> Arc<Object> {
    let json = value.to_string().into();
    Arc::new(Object {
        value,
        json,
        version: 0,
    })
}

fn adopt_namespace(kind: Kind, namespace: &str, object: &mut Value) -> Result<(), Status> {
    let found = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if !kind.facts().namespaced {
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

/// Refuses a write meant for another version or another object of the name.
pub(super) fn check_preconditions(key: &Key, old: &Object, asked: &Value) -> Result<(), Status> {
    let facts = key.kind.facts();
    let conflict = |why: &str| Err(Status::conflict(facts.group, facts.plural, &key.name, why));
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
