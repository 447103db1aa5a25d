//! Which values are owned as a whole, and which in parts (`x-kubernetes-list-type`, `x-kubernetes-map-type` and
//! `x-kubernetes-list-map-keys` of upstream's OpenAPI). Keys of items that strategic merge patches share with it come
//! from [`list_merge`].

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::{
    kinds::Kind,
    patch::{ListMerge, list_merge},
};

/// A key of a list's items, and its default.
type ItemKey = (&'static str, Option<&'static str>);

/// How a value is owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As a whole.
    Whole,
    /// A map, field by field.
    Fields,
    /// A list, item by item.
    Items(Vec<ItemKey>),
    /// A list, value by value.
    Values,
}

/// Lists whose items have two keys.
const TWO_KEYS: [(&str, [ItemKey; 2]); 3] = [
    ("spec.ports", [("port", None), ("protocol", Some("TCP"))]),
    (".ports", [("containerPort", None), ("protocol", Some("TCP"))]),
    (
        "spec.topologySpreadConstraints",
        [("topologyKey", None), ("whenUnsatisfiable", None)],
    ),
];
/// Lists that merge in strategic merge patches, and yet are owned as a whole.
const WHOLE_LISTS: [&str; 2] = ["status.hostIPs", "imagePullSecrets"];
/// Maps that are owned as a whole, wherever they are.
const WHOLE_MAPS: [&str; 11] = [
    "nodeSelector",
    "labelSelector",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "secretRef",
    "involvedObject",
    "related",
    "source",
];

/// The shape of what stands at a path (field names joined by dots, items left out).
pub(super) fn shape(kind: Kind, path: &str, value: &Value) -> Shape {
    match value {
        Value::Object(_) => {
            let name = path.rsplit('.').next().unwrap_or_default();
            let selector = kind == Kind::Service && path == "spec.selector";
            // A volume's source is owned in parts, an event's is not.
            let whole = WHOLE_MAPS.contains(&name) && (name != "source" || kind == Kind::Event);
            if selector || whole {
                Shape::Whole
            } else {
                Shape::Fields
            }
        }
        Value::Array(_) => list_shape(kind, path),
        _ => Shape::Whole,
    }
}

fn list_shape(kind: Kind, path: &str) -> Shape {
    if WHOLE_LISTS.contains(&path) {
        return Shape::Whole;
    }
    let merge = list_merge(kind, path);
    let two = TWO_KEYS.iter().find(|(known, _)| match known.strip_prefix('.') {
        // Of containers, in each of their lists.
        Some(_) => path != "spec.ports" && path.ends_with(known),
        None => path == *known,
    });
    match (merge, two) {
        (None, _) => Shape::Whole,
        (Some(ListMerge::Set), _) => Shape::Values,
        (Some(ListMerge::Key(_)), Some((_, keys))) => Shape::Items(keys.to_vec()),
        (Some(ListMerge::Key(key)), None) => Shape::Items(vec![(key, None)]),
    }
}

/// The element that names an item: `k:{"port":80,"protocol":"TCP"}`. `None`: it lacks a key.
pub(super) fn item_element(keys: &[ItemKey], item: &Value) -> Option<String> {
    let mut map = Map::new();
    for (key, otherwise) in keys {
        let value = match (&item[*key], otherwise) {
            (Value::Null, Some(text)) => Value::from(*text),
            (Value::Null, None) => return None,
            (value, _) => value.clone(),
        };
        map.insert((*key).to_owned(), value);
    }
    Some(format!("k:{}", Value::Object(map)))
}

/// The elements of a list with their values.
///
/// # Errors
/// The element of a duplicate, or none if an item has no element.
pub(super) fn elements<'a>(
    shape: &Shape,
    list: &'a Value,
) -> Result<Vec<(String, &'a Value)>, Option<String>> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for value in list.as_array().into_iter().flatten() {
        let element = match shape {
            Shape::Items(keys) => item_element(keys, value).ok_or(None)?,
            _ => format!("v:{value}"),
        };
        if !seen.insert(element.clone()) {
            return Err(Some(element));
        }
        all.push((element, value));
    }
    Ok(all)
}

/// A path and one more field.
pub(super) fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}
