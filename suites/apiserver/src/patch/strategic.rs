//! Strategic merge patch (`apimachinery/pkg/util/strategicpatch`): a merge patch whose lists merge by key, with
//! directives for what a merge can't express.

use serde_json::{Map, Value};

use super::{
    order::{normalize, same},
    schema::{ListMerge, list_merge},
};
use crate::kinds::Kind;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies a patch to an object.
///
/// # Errors
/// A message about the patch.
pub(super) fn apply(kind: Kind, current: &Value, patch: &Value) -> Result<Value, String> {
    let original = current.as_object().cloned().unwrap_or_default();
    let patch = patch.as_object().cloned().unwrap_or_default();
    Merger { kind }.map(original, patch, "").map(Value::Object)
}

struct Merger {
    kind: Kind,
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

impl Merger {
    fn map(
        &self,
        mut original: Map<String, Value>,
        mut patch: Map<String, Value>,
        path: &str,
    ) -> Result<Map<String, Value>, String> {
        match patch.remove(PATCH) {
            None => {}
            Some(directive) => match directive.as_str() {
                Some("replace") => return Ok(patch),
                Some("delete") => return Ok(Map::new()),
                Some("merge") => {}
                _ => return Err(format!("unknown patch directive {directive} at {path:?}")),
            },
        }
        retain_keys(&mut original, &mut patch, path)?;
        let orders = take_prefixed(&mut patch, ORDER);
        let mut gone = Vec::new();
        for (field, values) in take_prefixed(&mut patch, DELETE_FROM) {
            match values {
                Value::Array(values) => gone.push((field, values)),
                _ => return Err(format!("{DELETE_FROM}{field} must be a list")),
            }
        }
        for (field, wanted) in orders {
            self.ordered_list(&mut original, &mut patch, &field, &wanted, path)?;
        }
        for (field, value) in patch {
            let here = join(path, &field);
            let merged = match (original.remove(&field), value) {
                (_, Value::Null) => continue,
                (Some(Value::Object(old)), Value::Object(new)) => Value::Object(self.map(old, new, &here)?),
                (Some(Value::Array(old)), Value::Array(new)) => match list_merge(self.kind, &here) {
                    Some(merge) => {
                        let wanted = without_deletions(&new);
                        let merged = self.list(old.clone(), new, merge, &here)?;
                        Value::Array(normalize(merge, merged, &wanted, &old))
                    }
                    None => plain(Value::Array(new)),
                },
                (_, value) => plain(value),
            };
            original.insert(field, merged);
        }
        // Last, so that what a patch both adds and deletes is gone.
        for (field, values) in gone {
            if let Some(list) = original.get_mut(&field).and_then(Value::as_array_mut) {
                list.retain(|value| !values.contains(value));
            }
        }
        Ok(original)
    }

    /// A list with `$setElementOrder`: merged if the patch has it, then put in the order of the directive.
    fn ordered_list(
        &self,
        original: &mut Map<String, Value>,
        patch: &mut Map<String, Value>,
        field: &str,
        wanted: &Value,
        path: &str,
    ) -> Result<(), String> {
        let here = join(path, field);
        let Some(wanted) = wanted.as_array() else {
            return Err(format!("{ORDER}{field} must be a list"));
        };
        let Some(merge) = list_merge(self.kind, &here) else {
            return Err(format!(
                "{ORDER}{field} is there, but {here:?} is no list that merges"
            ));
        };
        let before = original.get(field).and_then(Value::as_array).cloned();
        let given = match patch.get(field) {
            None => None,
            Some(Value::Array(list)) => Some(list.clone()),
            Some(other) => {
                return Err(format!(
                    "{ORDER}{field} is there, so {here:?} must be a list, not {other}"
                ));
            }
        };
        check_order(merge, given.iter().flatten(), wanted).map_err(|why| format!("{here:?}: {why}"))?;
        patch.remove(field);
        if before.is_none() && given.is_none() {
            return Ok(());
        }
        let before = before.unwrap_or_default();
        let merged = match given {
            Some(given) => self.list(before.clone(), given, merge, &here)?,
            None => before.clone(),
        };
        original.insert(field.to_owned(), normalize(merge, merged, wanted, &before).into());
        Ok(())
    }

    fn list(
        &self,
        mut original: Vec<Value>,
        patch: Vec<Value>,
        merge: ListMerge,
        path: &str,
    ) -> Result<Vec<Value>, String> {
        let ListMerge::Key(key) = merge else {
            for value in patch {
                if !original.contains(&value) {
                    original.push(value);
                }
            }
            return Ok(original);
        };
        let mut changes = Vec::with_capacity(patch.len());
        let mut replace = false;
        for element in patch {
            match element[PATCH].as_str() {
                Some("replace") => replace = true,
                Some("delete") => {
                    if element[key].is_null() {
                        return Err(no_key(path, key));
                    }
                    original.retain(|other| !same(merge, other, &element));
                }
                None => changes.push(element),
                Some("merge") => {
                    return Err(format!(
                        "merging lists cannot yet be specified in the patch: {path:?}"
                    ));
                }
                Some(other) => return Err(format!("unknown patch directive {other:?} in list {path:?}")),
            }
        }
        if replace {
            return Ok(changes.into_iter().map(plain).collect());
        }
        for element in changes {
            if element[key].is_null() {
                return Err(no_key(path, key));
            }
            match original.iter().position(|other| same(merge, other, &element)) {
                None => original.push(plain(element)),
                Some(at) => {
                    let old = original[at].as_object().cloned().unwrap_or_default();
                    let new = element.as_object().cloned().unwrap_or_default();
                    original[at] = Value::Object(self.map(old, new, path)?);
                }
            }
        }
        Ok(original)
    }
}

/// Elements that a patch keeps must be in the order of its directive.
fn check_order<'a>(
    merge: ListMerge,
    given: impl Iterator<Item = &'a Value>,
    wanted: &[Value],
) -> Result<(), String> {
    let mut rest = wanted.iter();
    for element in given.filter(|element| !is_deletion(element)) {
        if let ListMerge::Key(key) = merge
            && element[key].is_null()
        {
            return Err(format!("an element does not contain declared merge key: {key}"));
        }
        if !rest.any(|other| same(merge, other, element)) {
            return Err(format!(
                "the order in the patch's list doesn't match {ORDER} list {wanted:?}"
            ));
        }
    }
    Ok(())
}

fn no_key(path: &str, key: &str) -> String {
    format!("an element of the patch's list {path:?} does not contain declared merge key: {key}")
}

fn is_deletion(element: &Value) -> bool {
    matches!(element[PATCH].as_str(), Some("delete" | "replace"))
}

fn without_deletions(list: &[Value]) -> Vec<Value> {
    list.iter()
        .filter(|element| !is_deletion(element))
        .cloned()
        .collect()
}

fn take_prefixed(patch: &mut Map<String, Value>, prefix: &str) -> Vec<(String, Value)> {
    let names: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(prefix))
        .cloned()
        .collect();
    let take = |name: String| Some((name[prefix.len()..].to_owned(), patch.remove(&name)?));
    names.into_iter().filter_map(take).collect()
}

fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    path: &str,
) -> Result<(), String> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Some(keys) = directive.as_array() else {
        return Err(format!("{RETAIN_KEYS} at {path:?} must be a list"));
    };
    let kept = |name: &str| keys.iter().any(|key| key == name);
    let stray = patch
        .iter()
        .find(|(name, value)| !value.is_null() && !name.starts_with('$') && !kept(name));
    if let Some((name, _)) = stray {
        return Err(format!(
            "{RETAIN_KEYS} at {path:?} doesn't match the patch: it lacks {name:?}"
        ));
    }
    original.retain(|name, _| kept(name));
    Ok(())
}

/// A new value, without nulls and directives, which have nothing to act on.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let map = map
                .into_iter()
                .filter(|(name, value)| !value.is_null() && !is_directive(name));
            Value::Object(map.map(|(name, value)| (name, plain(value))).collect())
        }
        Value::Array(list) => {
            let list = list.into_iter().filter(|element| !is_deletion(element));
            Value::Array(list.map(plain).collect())
        }
        other => other,
    }
}

fn is_directive(name: &str) -> bool {
    name == PATCH || name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(ORDER)
}
