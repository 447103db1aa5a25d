//! Sets of fields, and how managedFields write them (`FieldsV1`, structured-merge-diff's `fieldpath.Set`).
//!
//! An element of a path is text as there: `f:NAME` (a field), `k:{KEYS}` (an item of a keyed list), `v:VALUE` (of a set).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Marks a path that is in a set together with paths below it.
const SELF: &str = ".";

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    below: BTreeMap<String, Node>,
}

/// One path in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// The path itself is in the set.
    member: bool,
    rest: FieldSet,
}

/// The elements of a path.
pub(super) type Path = Vec<String>;

impl FieldSet {
    /// The first elements of its paths.
    pub(super) fn children(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.below.iter()
    }

    pub(super) fn child(&self, element: &str) -> Option<&Node> {
        self.below.get(element)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.below.is_empty()
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let node = self.below.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.rest.insert(rest);
        }
    }

    /// Removes a path and all below it.
    pub(super) fn cut(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        if rest.is_empty() {
            self.below.remove(*first);
        } else if let Some(node) = self.below.get_mut(*first) {
            node.rest.cut(rest);
            if node.is_empty() {
                self.below.remove(*first);
            }
        }
    }

    pub(super) fn union(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.below {
            let node = self.below.entry(element.clone()).or_default();
            node.member |= theirs.member;
            node.rest = std::mem::take(&mut node.rest).union(&theirs.rest);
        }
        self
    }

    pub(super) fn difference(&self, other: &Self) -> Self {
        self.keep(other, &|member, theirs| member && !theirs)
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.keep(other, &|member, theirs| member && theirs)
    }

    fn keep(&self, other: &Self, member: &impl Fn(bool, bool) -> bool) -> Self {
        let empty = Node::default();
        let kept = self.below.iter().filter_map(|(element, node)| {
            let theirs = other.below.get(element).unwrap_or(&empty);
            let node = Node {
                member: member(node.member, theirs.member),
                rest: node.rest.keep(&theirs.rest, member),
            };
            (!node.is_empty()).then(|| (element.clone(), node))
        });
        Self {
            below: kept.collect(),
        }
    }

    /// The paths in it, in order.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut all = Vec::new();
        for (element, node) in &self.below {
            if node.member {
                all.push(vec![element.clone()]);
            }
            for mut path in node.rest.paths() {
                path.insert(0, element.clone());
                all.push(path);
            }
        }
        all
    }

    /// `fieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut map = Map::new();
        for (element, node) in &self.below {
            let mut inner = node.rest.to_json();
            if node.member && !node.rest.is_empty() {
                inner[SELF] = Value::Object(Map::new());
            }
            map.insert(element.clone(), inner);
        }
        Value::Object(map)
    }

    /// From `fieldsV1`. Anything but a map is empty.
    pub(super) fn from_json(value: &Value) -> Self {
        let fields = value.as_object().into_iter().flatten();
        let nodes = fields
            .filter(|(element, _)| *element != SELF)
            .map(|(element, inner)| {
                let rest = Self::from_json(inner);
                let node = Node {
                    member: rest.is_empty() || !inner[SELF].is_null(),
                    rest,
                };
                (element.clone(), node)
            });
        Self {
            below: nodes.collect(),
        }
    }
}

impl Node {
    pub(super) fn is_member(&self) -> bool {
        self.member
    }

    /// The paths below it.
    pub(super) fn below(&self) -> &FieldSet {
        &self.rest
    }

    fn is_empty(&self) -> bool {
        !self.member && self.rest.is_empty()
    }
}

/// A path as messages show it: `.spec.ports[port=80,protocol="TCP"].name`.
pub(super) fn display(path: &[String]) -> String {
    let mut text = String::new();
    for element in path {
        match element.split_once(':') {
            Some(("k", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                text.push_str(&format!("[{}]", keys.join(",")));
            }
            Some(("v", value)) => text.push_str(&format!("[={value}]")),
            Some((_, name)) => text.push_str(&format!(".{name}")),
            None => text.push_str(element),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: &Value) -> FieldSet {
        FieldSet::from_json(value)
    }

    #[test]
    fn sets_read_back_and_combine() {
        let item = "k:{\"port\":80,\"protocol\":\"TCP\"}";
        let one = json!({"f:spec": {"f:ports": {item: {".": {}, "f:name": {}}}, "f:type": {}}});
        let two = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:type": {}}});
        assert_eq!(set(&one).to_json(), one);
        let both = set(&one).union(&set(&two));
        assert_eq!(
            both.difference(&set(&two)).to_json(),
            json!({"f:spec": {"f:ports": {item: {".": {}, "f:name": {}}}}})
        );
        assert_eq!(both.intersection(&set(&two)), set(&two));
        assert!(set(&one).intersection(&set(&two)).paths() == [["f:spec", "f:type"]]);
        let shown: Vec<String> = both.paths().iter().map(|path| display(path)).collect();
        assert_eq!(
            shown,
            [
                ".metadata.labels.a",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].name",
                ".spec.type"
            ]
        );
    }

    #[test]
    fn a_cut_takes_all_below_along() {
        let mut cut =
            set(&json!({"f:status": {"f:phase": {}}, "f:metadata": {"f:name": {}, "f:labels": {"f:a": {}}}}));
        cut.cut(&["f:status"]);
        cut.cut(&["f:metadata", "f:name"]);
        assert_eq!(cut.to_json(), json!({"f:metadata": {"f:labels": {"f:a": {}}}}));
    }
}
