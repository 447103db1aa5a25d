//! Applies a configuration to an object: merges it, and removes fields that no longer have an owner.

use serde_json::Value;

use super::{
    set::FieldSet,
    shape::{Shape, elements, item_element, join, shape},
};
use crate::kinds::Kind;

/// Merges a configuration into a live object.
pub(super) fn merge(kind: Kind, path: &str, live: &Value, config: &Value) -> Value {
    let shape = shape(kind, path, config);
    match (&shape, live, config) {
        (Shape::Fields, Value::Object(live), Value::Object(config)) => {
            let mut merged = live.clone();
            for (name, value) in config {
                let before = live.get(name).unwrap_or(&Value::Null);
                merged.insert(name.clone(), merge(kind, &join(path, name), before, value));
            }
            Value::Object(merged)
        }
        (Shape::Items(_) | Shape::Values, Value::Array(_), Value::Array(_)) => {
            let (Ok(before), Ok(wanted)) = (elements(&shape, live), elements(&shape, config)) else {
                return config.clone();
            };
            let find = |element: &str| {
                before
                    .iter()
                    .find(|(other, _)| other == element)
                    .map(|(_, value)| *value)
            };
            let mut merged: Vec<Value> = Vec::new();
            let mut others = before
                .iter()
                .filter(|(element, _)| !wanted.iter().any(|(one, _)| one == element))
                .peekable();
            let position = |element: &str| before.iter().position(|(other, _)| other == element);
            for (element, value) in &wanted {
                // Items of other managers keep their place before the same item.
                if let Some(at) = position(element) {
                    while let Some((_, other)) =
                        others.next_if(|(other, _)| position(other).is_some_and(|other| other < at))
                    {
                        merged.push((*other).clone());
                    }
                }
                merged.push(merge(kind, path, find(element).unwrap_or(&Value::Null), value));
            }
            merged.extend(others.map(|(_, other)| (*other).clone()));
            Value::Array(merged)
        }
        _ => config.clone(),
    }
}

/// Removes the fields that a manager had applied before and that no manager owns now.
pub(super) fn prune(kind: Kind, path: &str, value: &mut Value, before: &FieldSet, owned: &FieldSet) {
    let none = FieldSet::default();
    for (element, node) in before.children() {
        let still = owned.child(element);
        if still.is_none() && node.is_member() {
            remove(kind, path, value, element);
            continue;
        }
        let inner_path = element
            .strip_prefix("f:")
            .map_or_else(|| path.to_owned(), |name| join(path, name));
        let Some(inner) = find(kind, path, value, element) else {
            continue;
        };
        let was_empty = is_empty(inner);
        prune(
            kind,
            &inner_path,
            inner,
            node.below(),
            still.map_or(&none, |still| still.below()),
        );
        if still.is_none() && !was_empty && is_empty(inner) {
            remove(kind, path, value, element);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Whether a list's value is what an element names.
fn is_named(shape: &Shape, value: &Value, element: &str) -> bool {
    match shape {
        Shape::Items(keys) => item_element(keys, value).as_deref() == Some(element),
        _ => format!("v:{value}") == element,
    }
}

fn find<'a>(kind: Kind, path: &str, value: &'a mut Value, element: &str) -> Option<&'a mut Value> {
    if let Some(name) = element.strip_prefix("f:") {
        return value.get_mut(name);
    }
    let shape = shape(kind, path, value);
    value
        .as_array_mut()?
        .iter_mut()
        .find(|value| is_named(&shape, value, element))
}

fn remove(kind: Kind, path: &str, value: &mut Value, element: &str) {
    let shape = shape(kind, path, value);
    match (element.strip_prefix("f:"), value) {
        (Some(name), Value::Object(map)) => drop(map.remove(name)),
        (None, Value::Array(list)) => list.retain(|value| !is_named(&shape, value, element)),
        _ => {}
    }
}
