//! Which manager owns which field: server-side apply (`structured-merge-diff` and `apimachinery/pkg/util/managedfields`).
//!
//! ```text
//!  create, update: old, new ─▶ compare ─▶ what was written is the writer's alone
//!  apply: live + configuration ─▶ merge ─▶ prune what the manager left ─▶ compare ─▶ conflicts, or the owners
//! ```
//!
//! `set` holds sets of fields, `shape` knows what is owned in parts, `compare` and `merge` work on objects, `entries`
//! reads and writes managedFields, `conflict` has the refusals.

mod compare;
mod conflict;
mod entries;
mod merge;
mod set;
mod shape;

use serde_json::{Value, json};

use self::{
    compare::{compare, fields},
    entries::Entries,
    set::FieldSet,
};
use crate::{
    kinds::{Kind, Part},
    status::Status,
};

/// Owner of the fields that were there before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager that takes over the fields that it applied on the client side …
const KUBECTL: &str = "kubectl";
/// … which this annotation lists.
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

/// A writer of fields.
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
            api_version: kind.info().api_version(),
        }
    }
}

/// Makes a manager the owner of all fields of a new object, which has its defaults but not yet what the server adds.
pub(crate) fn created(kind: Kind, object: &mut Value, manager: &Manager, now: &Value) {
    // What upstream's empty object shows is not new in a full one.
    let empty = json!({"metadata": {}, "spec": {"containers": null}, "status": {"loadBalancer": {}}, "endpoints": null,
                       "ports": null});
    let mut entries = Entries::default();
    update(kind, &mut entries, (&empty, object), manager, now);
    entries.write(object);
}

/// Makes a manager the owner of the fields that it changed; `new` has its defaults.
pub(crate) fn updated(kind: Kind, old: &Value, new: &mut Value, manager: &Manager, now: &Value) {
    // Clients that do not know managedFields do not send them; others may change owners.
    let sent = &new["metadata"]["managedFields"];
    let base = if sent.as_array().is_none_or(Vec::is_empty) {
        old
    } else {
        &*new
    };
    let mut entries = Entries::read(base);
    if !entries.is_empty() {
        update(kind, &mut entries, (old, new), manager, now);
    }
    entries.write(new);
}

fn update(kind: Kind, entries: &mut Entries, (old, new): (&Value, &Value), manager: &Manager, now: &Value) {
    let (written, removed) = changes(kind, manager, old, new);
    entries.disown(&removed);
    if !written.is_empty() {
        entries.add(manager, &written, now);
    }
}

/// The fields that a manager has written and removed, without those that have no owner.
fn changes(kind: Kind, manager: &Manager, old: &Value, new: &Value) -> (FieldSet, FieldSet) {
    let (mut written, mut removed) = compare(kind, old, new);
    for fields in [&mut written, &mut removed] {
        ignore(kind, manager, fields);
    }
    (written, removed)
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
    entries.set(manager, configured(kind, config, manager)?, now.clone());
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
    if entries.is_empty() {
        let before = Manager {
            operation: Operation::Update,
            name: BEFORE_FIRST_APPLY.to_owned(),
            ..manager.clone()
        };
        update(kind, &mut entries, (&json!({"metadata": {}}), live), &before, now);
    }
    let wanted = configured(kind, config, manager)?;
    let (last, last_time) = entries.remove(manager).unwrap_or_default();
    let all_owned = entries
        .owners()
        .fold(wanted.clone(), |all, (_, fields)| all.union(fields));
    let mut new = merge::merge(kind, "", live, config);
    merge::prune(kind, "", &mut new, &last, &all_owned);
    let (written, removed) = changes(kind, manager, live, &new);
    if !force {
        conflict::check(&entries, &written.difference(&taken_over(kind, live, manager)))?;
    }
    entries.disown(&written);
    entries.disown(&removed);
    let is_unchanged = written.is_empty() && removed.is_empty() && last == wanted && !last_time.is_null();
    let time = if is_unchanged { last_time } else { now.clone() };
    entries.set(manager, wanted, time);
    entries.write(&mut new);
    Ok(new)
}

/// Fields that kubectl applied on the client side before. It may take them over without a conflict.
fn taken_over(kind: Kind, live: &Value, manager: &Manager) -> FieldSet {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    let last = text
        .filter(|_| manager.name == KUBECTL)
        .and_then(|text| serde_json::from_str(text).ok());
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
    let (info, meta) = (kind.info(), &config["metadata"]);
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    Status::without_reason(format!(
        "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {why}",
        text("namespace"),
        text("name"),
        info.group,
        info.version,
        info.kind
    ))
}

/// Removes fields without owners: those that only the server writes, and those that the request can't write.
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
    match (kind.info().status, manager.subresource.is_empty()) {
        (true, true) => fields.cut(&["f:status"]),
        (true, false) => fields.cut(&["f:spec"]),
        (false, _) => {}
    }
}
