//! `metadata.managedFields`: who owns which fields.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Manager, Operation, set::FieldSet};

/// Managers that only updated and are told apart; older ones are taken together (`DefaultMaxUpdateManagers`).
const MOST_UPDATERS: usize = 10;
/// Who stands for the older ones.
const ANCIENT: &str = "ancient-changes";

/// What one manager owns, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) fields: FieldSet,
    pub(super) time: Value,
}

/// The managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) of: BTreeMap<Manager, Owned>,
}

impl Entries {
    /// Of an object; entries that can't be read are none.
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

    /// Writes them into an object: appliers first, then by time.
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
