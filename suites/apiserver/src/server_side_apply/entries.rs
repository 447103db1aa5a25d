//! `metadata.managedFields`: managers and their fields.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Manager, Operation, set::FieldSet};

/// Most managers with operation Update in one object; the oldest ones are merged (`DefaultMaxUpdateManagers`).
const MOST_UPDATERS: usize = 10;
/// Name of the manager that the oldest ones are merged into.
const ANCIENT: &str = "ancient-changes";

/// Fields of one manager, and when it wrote them last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    fields: FieldSet,
    time: Value,
}

/// The managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    of: BTreeMap<Manager, Owned>,
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Managers and their fields.
    pub(super) fn owners(&self) -> impl Iterator<Item = (&Manager, &FieldSet)> {
        self.of.iter().map(|(manager, owned)| (manager, &owned.fields))
    }

    /// Takes fields from all managers.
    pub(super) fn disown(&mut self, fields: &FieldSet) {
        for owned in self.of.values_mut() {
            owned.fields = owned.fields.difference(fields);
        }
    }

    /// Gives fields to a manager, in addition to its own, and takes them from all others.
    pub(super) fn add(&mut self, manager: &Manager, fields: &FieldSet, now: &Value) {
        let own = self.of.remove(manager).map(|owned| owned.fields);
        self.disown(fields);
        self.set(manager, own.unwrap_or_default().union(fields), now.clone());
    }

    /// The fields of a manager.
    pub(super) fn set(&mut self, manager: &Manager, fields: FieldSet, time: Value) {
        self.of.insert(manager.clone(), Owned { fields, time });
    }

    /// Removes a manager. Returns its fields and when it wrote them last.
    pub(super) fn remove(&mut self, manager: &Manager) -> Option<(FieldSet, Value)> {
        self.of.remove(manager).map(|owned| (owned.fields, owned.time))
    }

    /// Reads those of an object. Entries that can't be read are left out.
    pub(super) fn read(object: &Value) -> Self {
        let list = object["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten();
        let entry = |entry: &Value| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let operation = match entry["operation"].as_str()? {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let manager = Manager {
                operation,
                name: text("manager"),
                subresource: text("subresource"),
                api_version: text("apiVersion"),
            };
            let owned = Owned {
                fields: FieldSet::from_json(&entry["fieldsV1"]),
                time: entry["time"].clone(),
            };
            Some((manager, owned))
        };
        Self {
            of: list.filter_map(entry).collect(),
        }
    }

    /// Writes them into an object: first those with operation Apply, then by time.
    pub(super) fn write(mut self, object: &mut Value) {
        self.bound();
        let mut all: Vec<(Manager, Owned)> = self
            .of
            .into_iter()
            .filter(|(_, owned)| !owned.fields.is_empty())
            .collect();
        all.sort_by_key(|(manager, owned)| {
            let time = owned.time.as_str().unwrap_or_default().to_owned();
            (manager.operation, time, manager.name.clone())
        });
        let list: Vec<Value> = all
            .into_iter()
            .map(|(manager, owned)| {
                let mut entry = json!({
                    "manager": manager.name, "operation": manager.operation.as_str(), "apiVersion": manager.api_version,
                    "time": owned.time, "fieldsType": "FieldsV1", "fieldsV1": owned.fields.to_json(),
                });
                if !manager.subresource.is_empty() {
                    entry["subresource"] = manager.subresource.into();
                }
                entry
            })
            .collect();
        match object["metadata"].as_object_mut() {
            Some(meta) if list.is_empty() => drop(meta.remove("managedFields")),
            Some(meta) => drop(meta.insert("managedFields".to_owned(), list.into())),
            None => {}
        }
    }

    fn bound(&mut self) {
        let updates = |manager: &&Manager| manager.operation == Operation::Update;
        while self.of.keys().filter(updates).count() > MOST_UPDATERS {
            let oldest = self
                .of
                .iter()
                .filter(|(manager, _)| updates(manager) && manager.name != ANCIENT)
                .min_by_key(|(_, owned)| owned.time.as_str().unwrap_or_default().to_owned());
            let Some((manager, _)) = oldest else { return };
            let manager = manager.clone();
            let Some(owned) = self.of.remove(&manager) else {
                return;
            };
            let ancient = Manager {
                name: ANCIENT.to_owned(),
                ..manager
            };
            let entry = self.of.entry(ancient).or_insert_with(|| Owned {
                fields: FieldSet::default(),
                time: Value::Null,
            });
            entry.fields = std::mem::take(&mut entry.fields).union(&owned.fields);
            entry.time = owned.time;
        }
    }
}
