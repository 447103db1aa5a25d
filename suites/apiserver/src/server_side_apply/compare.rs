//! The fields of an object, and those in which two states of it differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    set::{FieldSet, Path, display},
    shape::{Shape, elements, join, shape},
};
use crate::kinds::Kind;

/// Compares two states of an object. Returns the fields that were written (added or changed), and those that were removed.
pub(super) fn compare(kind: Kind, old: &Value, new: &Value) -> (FieldSet, FieldSet) {
    let mut comparing = Comparing {
        kind,
        written: FieldSet::default(),
        removed: FieldSet::default(),
        at: Path::new(),
    };
    comparing.walk("", Some(old), Some(new));
    (comparing.written, comparing.removed)
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

fn names(value: Option<&Value>) -> impl Iterator<Item = &String> {
    let map = value.and_then(Value::as_object).into_iter().flatten();
    map.map(|(name, _)| name)
}

fn field<'a>(value: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    value.and_then(|value| value.get(name))
}

struct Comparing {
    kind: Kind,
    written: FieldSet,
    removed: FieldSet,
    at: Path,
}

impl Comparing {
    fn walk(&mut self, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let Some(example) = present(new).or(present(old)) else {
            return self.leaf(old, new);
        };
        let shape = shape(self.kind, path, example);
        let same_type = |value: Option<&Value>| {
            present(value).is_none_or(|value| {
                value.is_object() == example.is_object() && value.is_array() == example.is_array()
            })
        };
        if shape == Shape::Whole || !same_type(old) || !same_type(new) {
            return self.leaf(old, new);
        }
        if shape == Shape::Fields {
            self.whole(old, new);
            let names: BTreeSet<&String> = [old, new].into_iter().flat_map(names).collect();
            for name in names {
                let (old, new) = (field(old, name), field(new, name));
                self.below(format!("f:{name}"), &join(path, name), old, new);
            }
            return;
        }
        let both = (
            elements(&shape, old.unwrap_or(&Value::Null)),
            elements(&shape, new.unwrap_or(&Value::Null)),
        );
        let (Ok(before), Ok(after)) = both else {
            // A list whose items can't be told apart is owned as a whole.
            return self.leaf(old, new);
        };
        self.whole(old, new);
        let (before, after): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (before.into_iter().collect(), after.into_iter().collect());
        let elements: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for element in elements {
            let (old, new) = (before.get(element).copied(), after.get(element).copied());
            self.below(element.clone(), path, old, new);
        }
    }

    fn below(&mut self, element: String, path: &str, old: Option<&Value>, new: Option<&Value>) {
        self.at.push(element);
        self.walk(path, old, new);
        self.at.pop();
    }

    /// A map or list that is owned in parts is itself written when it is added, and removed when it is removed.
    fn whole(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, Some(_)) => self.written.insert(&self.at),
            (Some(_), None) => self.removed.insert(&self.at),
            _ => {}
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(_), None) => self.removed.insert(&self.at),
            (old, Some(new)) if old != Some(new) => self.written.insert(&self.at),
            _ => {}
        }
    }
}

/// The fields that an applied configuration has.
///
/// # Errors
/// Where a list has two items of the same key, or one without.
pub(super) fn fields(kind: Kind, config: &Value) -> Result<FieldSet, String> {
    let mut found = FieldSet::default();
    collect(kind, "", &mut Path::new(), config, &mut found)?;
    Ok(found)
}

fn collect(kind: Kind, path: &str, at: &mut Path, value: &Value, found: &mut FieldSet) -> Result<(), String> {
    let shape = shape(kind, path, value);
    let children: Vec<(String, String, &Value)> = match &shape {
        Shape::Whole => Vec::new(),
        Shape::Fields => value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (format!("f:{name}"), join(path, name), value))
            .collect(),
        Shape::Items(_) | Shape::Values => elements(&shape, value)
            .map_err(|twice| match twice {
                Some(element) => {
                    let key = display(&[element]);
                    format!("{}: duplicate entries for key {key}", display(at))
                }
                None => format!("{}: an item does not have the list's keys", display(at)),
            })?
            .into_iter()
            .map(|(element, value)| (element, path.to_owned(), value))
            .collect(),
    };
    if children.is_empty() {
        found.insert(at);
    }
    for (element, path, value) in children {
        let item = !element.starts_with("f:");
        at.push(element);
        if item {
            found.insert(at);
        }
        collect(kind, &path, at, value, found)?;
        at.pop();
    }
    Ok(())
}
