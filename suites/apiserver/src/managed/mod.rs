//! Who owns which field: server-side apply (`structured-merge-diff` and `apimachinery/pkg/util/managedfields`).
//!
//! ```text
//!  create, update: old, new ─▶ compare ─▶ what was written is the writer's, nobody else's
//!  apply: live + configuration ─▶ merge ─▶ prune what the manager left ─▶ compare ─▶ conflicts, or the owners
//! ```
//!
//! `set` holds sets of fields, `shape` knows what is owned in parts, `compare` and `merge` work on objects, `entries`
//! reads and writes managedFields, `conflict` words what is refused.

mod compare;
mod conflict;
mod entries;
mod merge;
mod set;
mod shape;

use serde_json::{Value, json};

use self::{
    compare::{compare, fields},
    entries::{Entries, Owned},
    set::FieldSet,
};
use crate::{
    kinds::{Kind, Part},
    status::Status,
};

/// Who owned what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager that takes its own earlier fields over …
const KUBECTL: &str = "kubectl";
/// … which it has written down here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What a manager does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) operation: Operation,
    /// `fieldManager`, or the first word of the client's User-Agent.
    pub(crate) name: String,
    /// `status`, or empty.
    pub(crate) subresource: String,
    pub(crate) api_version: String,
}

impl Manager {
    pub(crate) fn new(operation: Operation, name: String, kind: Kind, part: Part) -> Self {
        let subresource = if part == Part::Status { "status" } else { "" };
        Self {
            operation,
            name,
            subresource: subresource.to_owned(),
            api_version: kind.facts().api_version(),
        }
    }
}

/// Notes in a new object that a manager has written all of it; `object` has its defaults, and not yet what the server
/// adds.
pub(crate) fn created(kind: Kind, object: &mut Value, manager: &Manager, now: &Value) {
    // What upstream's empty object shows is not new in a full one.
    let empty = json!({"metadata": {}, "spec": {"containers": null}, "status": {"loadBalancer": {}}, "endpoints": null,
                       "ports": null});
    let mut entries = Entries::default();
    update(kind, &mut entries, (&empty, object), manager, now);
    entries.write(object);
}

/// Notes in the new state of an object what a manager has changed; `new` has its defaults.
pub(crate) fn updated(kind: Kind, old: &Value, new: &mut Value, manager: &Manager, now: &Value) {
    // Clients that do not know the field do not send it; those that do may hand fields on.
    let sent = &new["metadata"]["managedFields"];
    let base = if sent.as_array().is_none_or(Vec::is_empty) {
        old
    } else {
        &*new
    };
    let mut entries = Entries::read(base);
    if !entries.of.is_empty() {
        update(kind, &mut entries, (old, new), manager, now);
    }
    entries.write(new);
}

fn update(kind: Kind, entries: &mut Entries, (old, new): (&Value, &Value), manager: &Manager, now: &Value) {
    let mut found = compare(kind, old, new);
    ignore(kind, manager, &mut found.written);
    ignore(kind, manager, &mut found.removed);
    for owned in entries.of.values_mut() {
        owned.fields = owned.fields.difference(&found.removed);
    }
    for (other, owned) in &mut entries.of {
        if other != manager {
            owned.fields = owned.fields.difference(&found.written);
        }
    }
    if !found.written.is_empty() {
        let mine = entries
            .of
            .remove(manager)
            .map(|owned| owned.fields)
            .unwrap_or_default();
        let owned = Owned {
            fields: mine.union(&found.written),
            time: now.clone(),
        };
        entries.of.insert(manager.clone(), owned);
    }
}

/// A new object from a configuration.
///
/// # Errors
/// 500, as upstream, if it can't be owned.
pub(crate) fn applied_new(
    kind: Kind,
    config: &Value,
    manager: &Manager,
    now: &Value,
) -> Result<Value, Status> {
    let mut object = config.clone();
    let mut entries = Entries::default();
    let owned = Owned {
        fields: configured(kind, config, manager)?,
        time: now.clone(),
    };
    entries.of.insert(manager.clone(), owned);
    entries.write(&mut object);
    Ok(object)
}

/// What a configuration makes of an object.
///
/// # Errors
/// 409 where it changes what others own, unless it is forced; 500, as upstream, if it can't be owned.
pub(crate) fn applied(
    kind: Kind,
    live: &Value,
    config: &Value,
    manager: &Manager,
    force: bool,
    now: &Value,
) -> Result<Value, Status> {
    let mut entries = Entries::read(live);
    if entries.of.is_empty() {
        let before = Manager {
            operation: Operation::Update,
            name: BEFORE_FIRST_APPLY.to_owned(),
            ..manager.clone()
        };
        update(kind, &mut entries, (&json!({"metadata": {}}), live), &before, now);
    }
    let wanted = configured(kind, config, manager)?;
    let last = entries.of.remove(manager);
    let others = entries
        .of
        .values()
        .fold(wanted.clone(), |all, owned| all.union(&owned.fields));
    let mut new = merge::merge(kind, "", live, config);
    let empty = FieldSet::default();
    merge::prune(
        kind,
        "",
        &mut new,
        last.as_ref().map_or(&empty, |last| &last.fields),
        &others,
    );
    let mut found = compare(kind, live, &new);
    ignore(kind, manager, &mut found.written);
    ignore(kind, manager, &mut found.removed);
    if !force {
        conflict::check(
            &entries,
            &found.written.difference(&taken_over(kind, live, manager)),
        )?;
    }
    for owned in entries.of.values_mut() {
        owned.fields = owned.fields.difference(&found.written).difference(&found.removed);
    }
    let unchanged = found.written.is_empty() && found.removed.is_empty();
    let time = match last {
        Some(last) if unchanged && last.fields == wanted => last.time,
        _ => now.clone(),
    };
    entries.of.insert(manager.clone(), Owned { fields: wanted, time });
    entries.write(&mut new);
    Ok(new)
}

/// What kubectl applied on its own side before, which it may take over without a conflict.
fn taken_over(kind: Kind, live: &Value, manager: &Manager) -> FieldSet {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    let last = text
        .filter(|_| manager.name == KUBECTL)
        .and_then(|text| serde_json::from_str(text).ok());
    // An annotation that can't be read takes nothing over.
    last.and_then(|last: Value| fields(kind, &last).ok())
        .unwrap_or_default()
}

fn configured(kind: Kind, config: &Value, manager: &Manager) -> Result<FieldSet, Status> {
    let mut wanted = fields(kind, config).map_err(|why| untyped(kind, config, &why))?;
    ignore(kind, manager, &mut wanted);
    Ok(wanted)
}

/// A configuration that does not fit its kind.
pub(crate) fn untyped(kind: Kind, config: &Value, why: &str) -> Status {
    let (facts, meta) = (kind.facts(), &config["metadata"]);
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    Status::without_reason(format!(
        "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {why}",
        text("namespace"),
        text("name"),
        facts.group,
        facts.version,
        facts.kind
    ))
}

/// Forgets what nobody owns: what the server alone writes, and what this request can't write.
fn ignore(kind: Kind, manager: &Manager, fields: &mut FieldSet) {
    for name in ["f:apiVersion", "f:kind"] {
        fields.cut(&[name]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        fields.cut(&["f:metadata", &format!("f:{name}")]);
    }
    match (kind.facts().status, manager.subresource.is_empty()) {
        (true, true) => fields.cut(&["f:status"]),
        (true, false) => fields.cut(&["f:spec"]),
        (false, _) => {}
    }
}
