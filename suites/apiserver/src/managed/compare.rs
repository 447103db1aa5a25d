//! Which fields an object has, and in which two of them differ.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    set::{FieldSet, Path, display},
    shape::{Shape, elements, join, shape},
};
use crate::kinds::Kind;

/// How a new state differs from an old one.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// What is there and was not, or is another.
    pub(super) written: FieldSet,
    /// What was there and is not.
    pub(super) removed: FieldSet,
}

/// Compares two states of an object.
pub(super) fn compare(kind: Kind, old: &Value, new: &Value) -> Comparison {
    let mut comparing = Comparing {
        kind,
        found: Comparison::default(),
        at: Path::new(),
    };
    comparing.walk("", Some(old), Some(new));
    comparing.found
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

struct Comparing {
    kind: Kind,
    found: Comparison,
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
        let null = Value::Null;
        if shape == Shape::Fields {
            self.whole(old, new);
            let fields = |value: Option<&Value>| {
                value
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.clone())
                    .collect::<BTreeSet<_>>()
            };
            for name in fields(old).union(&fields(new)) {
                let inner = |value: Option<&'_ Value>| value.and_then(|value| value.get(name)).cloned();
                let (old, new) = (inner(old), inner(new));
                self.below(format!("f:{name}"), &join(path, name), old.as_ref(), new.as_ref());
            }
            return;
        }
        let both = (
            elements(&shape, old.unwrap_or(&null)),
            elements(&shape, new.unwrap_or(&null)),
        );
        let (Ok(before), Ok(after)) = both else {
            // Items that can't be told apart are owned together.
            return self.leaf(old, new);
        };
        self.whole(old, new);
        let find = |all: &[(String, &Value)], wanted: &str| {
            all.iter()
                .find(|(element, _)| element == wanted)
                .map(|(_, value)| (*value).clone())
        };
        let names: BTreeSet<&String> = before.iter().chain(&after).map(|(element, _)| element).collect();
        for element in names {
            let (old, new) = (find(&before, element), find(&after, element));
            self.below(element.clone(), path, old.as_ref(), new.as_ref());
        }
    }

    fn below(&mut self, element: String, path: &str, old: Option<&Value>, new: Option<&Value>) {
        self.at.push(element);
        self.walk(path, old, new);
        self.at.pop();
    }

    /// What is owned in parts is itself written or removed only as it comes and goes.
    fn whole(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, Some(_)) => self.found.written.insert(&self.at),
            (Some(_), None) => self.found.removed.insert(&self.at),
            _ => {}
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(_), None) => self.found.removed.insert(&self.at),
            (old, Some(new)) if old != Some(new) => self.found.written.insert(&self.at),
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
