//! Deletion: gracefully for pods on nodes, delayed by finalizers, and of a namespace with its contents.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Key, Object, Scope, State, Store, write::now};
use crate::{kinds::Kind, selector::Selector, status::Status};

/// Namespaces that can't be deleted.
const UNDELETABLE: [&str; 3] = ["default", "kube-public", "kube-system"];
/// Default grace period of pods in seconds.
const DEFAULT_GRACE: i64 = 30;

/// `meta.k8s.io/v1.DeleteOptions`, as far as this server acts on it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Value,
    pub(crate) propagation_policy: Option<String>,
    /// The predecessor of `propagationPolicy`.
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) dry_run: Vec<String>,
}

/// The result of a deletion.
pub(crate) enum Deleted {
    /// The object is removed; this is its last state.
    Gone(Arc<Object>),
    /// It is marked, and waits for its kubelet, its finalizers or its contents.
    Pending(Arc<Object>),
}

impl Store {
    /// Deletes one object.
    pub(crate) fn delete(&self, key: &Key, options: &DeleteOptions) -> Result<Deleted, Status> {
        let info = key.kind.info();
        let mut state = self.lock();
        let old = Arc::clone(state.get(key)?);
        if key.kind == Kind::Namespace && UNDELETABLE.contains(&key.name.as_str()) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(info.group, info.plural, &key.name, why));
        }
        check_delete_preconditions(key, &old, &options.preconditions)?;
        if !options.dry_run.is_empty() {
            return Ok(Deleted::Gone(old));
        }
        let deleted = state.delete(key, &old, options.grace_period_seconds);
        self.publish(&state);
        Ok(deleted)
    }

    /// Deletes all objects of a scope. Returns them.
    pub(crate) fn delete_collection(&self, scope: &Scope, options: &DeleteOptions) -> Vec<Arc<Object>> {
        let mut state = self.lock();
        let objects: Vec<(Key, Arc<Object>)> = state
            .range(scope)
            .filter(|(_, object)| scope.selects(object))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        if options.dry_run.is_empty() {
            for (key, object) in &objects {
                state.delete(key, object, options.grace_period_seconds);
            }
            self.publish(&state);
        }
        objects.into_iter().map(|(_, object)| object).collect()
    }
}

impl State {
    /// Deletes an object, unless it has been deleted with its owner meanwhile.
    pub(super) fn delete(&mut self, key: &Key, old: &Arc<Object>, grace: Option<i64>) -> Deleted {
        let Some(old) = self.objects.get(key).map(Arc::clone) else {
            return Deleted::Gone(Arc::clone(old));
        };
        let grace = match key.kind {
            Kind::Namespace => return self.delete_namespace(key, &old),
            Kind::Pod => pod_grace(&old.value, grace),
            _ => 0,
        };
        if grace == 0 && !old.has_finalizers() {
            let marked = self.mark_pod(key, &old);
            return Deleted::Gone(self.remove(key, &marked));
        }
        let marked = old.meta()["deletionGracePeriodSeconds"].as_i64();
        // A second deletion can only shorten the grace period.
        if old.is_terminating() && marked.is_none_or(|marked| marked <= grace) {
            return Deleted::Pending(old);
        }
        let mut value = old.value.clone();
        mark(&mut value, grace);
        Deleted::Pending(self.commit(key.clone(), value))
    }

    /// A pod that is removed at once is marked before, because all deletions of pods are graceful upstream.
    fn mark_pod(&mut self, key: &Key, old: &Arc<Object>) -> Arc<Object> {
        if key.kind != Kind::Pod || old.meta()["deletionGracePeriodSeconds"] == 0 {
            return Arc::clone(old);
        }
        let mut value = old.value.clone();
        mark(&mut value, 0);
        self.commit(key.clone(), value)
    }

    /// Removes an object without finalizers.
    pub(super) fn remove(&mut self, key: &Key, object: &Arc<Object>) -> Arc<Object> {
        let gone = self.commit_removal(key.clone(), object.value.clone());
        if key.kind == Kind::Service {
            self.addresses.release(&gone.value);
        }
        self.collect_dependents(&gone);
        if !key.namespace.is_empty() {
            self.finish_namespace(&key.namespace);
        }
        gone
    }

    /// After an update of a namespace that only waited for its last finalizer.
    pub(super) fn finish_if_released(&mut self, key: &Key, object: &Object) {
        if key.kind == Kind::Namespace && object.is_terminating() {
            self.finish_namespace(&key.name);
        }
    }

    fn delete_namespace(&mut self, key: &Key, old: &Arc<Object>) -> Deleted {
        let mut shown = Arc::clone(old);
        if !old.is_terminating() {
            let mut value = old.value.clone();
            mark(&mut value, 0);
            if let Some(meta) = value["metadata"].as_object_mut() {
                meta.remove("deletionGracePeriodSeconds");
            }
            value["status"]["phase"] = "Terminating".into();
            shown = self.commit(key.clone(), value);
        }
        let mut content: Vec<(Key, Arc<Object>)> = Vec::new();
        for kind in Kind::ALL {
            let namespace = Some(key.name.clone());
            let scope = Scope {
                kind,
                namespace,
                selector: Selector::default(),
            };
            content.extend(
                self.range(&scope)
                    .map(|(key, object)| (key.clone(), Arc::clone(object))),
            );
        }
        for (content, object) in content {
            self.delete(&content, &object, None);
        }
        self.finish_namespace(&key.name);
        Deleted::Pending(shown)
    }

    /// Removes a terminating namespace that is empty.
    fn finish_namespace(&mut self, namespace: &str) {
        let key = Key::new(Kind::Namespace, "", namespace);
        let Some(object) = self.objects.get(&key) else {
            return;
        };
        let occupied = |kind| {
            let scope = Scope {
                kind,
                namespace: Some(namespace.to_owned()),
                selector: Selector::default(),
            };
            self.range(&scope).next().is_some()
        };
        if !object.is_terminating() || object.has_finalizers() || Kind::ALL.into_iter().any(occupied) {
            return;
        }
        // The namespace controller's last step: its finalizer is removed, and then the namespace.
        let mut value = object.value.clone();
        value["spec"] = json!({});
        let last = self.commit(key.clone(), value);
        self.commit_removal(key, last.value.clone());
    }
}

/// Whether an object that is being deleted can be removed.
pub(super) fn ends(value: &Value) -> bool {
    let meta = &value["metadata"];
    !meta["deletionTimestamp"].is_null()
        && meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && meta["finalizers"].as_array().is_none_or(Vec::is_empty)
}

fn check_delete_preconditions(key: &Key, old: &Object, asked: &Value) -> Result<(), Status> {
    let info = key.kind.info();
    let version = old.version.to_string();
    let uid = old.meta()["uid"].as_str().unwrap_or_default();
    let checks = [
        ("uid", "UID", uid, "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", version.as_str(), "modified"),
    ];
    for (field, word, current, happened) in checks {
        if let Some(asked) = asked[field].as_str()
            && asked != current
        {
            let why = format!(
                "the {word} in the precondition ({asked}) does not match the {word} in record ({current}). The \
                 object might have been {happened}"
            );
            return Err(Status::conflict(info.group, info.kind, &key.name, &why));
        }
    }
    Ok(())
}

fn mark(value: &mut Value, grace: i64) {
    let meta = &mut value["metadata"];
    let first = meta["deletionTimestamp"].is_null();
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(grace);
    meta["deletionTimestamp"] = if grace == 0 {
        now()
    } else {
        end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
    };
    meta["deletionGracePeriodSeconds"] = grace.into();
    if let Some(generation) = meta["generation"].as_i64()
        && first
    {
        meta["generation"] = (generation + 1).into();
    }
}

/// The grace period of a pod in seconds: 0 if it has no node or has ended.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if unscheduled || ended {
        return 0;
    }
    // Upstream treats a negative period as one second.
    match asked
        .or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(DEFAULT_GRACE)
    {
        grace if grace < 0 => 1,
        grace => grace,
    }
}
