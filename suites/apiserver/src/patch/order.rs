//! The order of a merged list: elements that the patch names in the patch's order, the others where the
//! server had them, as far as both can be true.

use serde_json::Value;

use super::schema::ListMerge;

/// Whether two elements are the same one.
pub(super) fn same(merge: ListMerge, a: &Value, b: &Value) -> bool {
    match merge {
        ListMerge::Set => a == b,
        ListMerge::Key(key) => !a[key].is_null() && a[key] == b[key],
    }
}

fn position(merge: ListMerge, list: &[Value], element: &Value) -> Option<usize> {
    list.iter().position(|other| same(merge, other, element))
}

/// Orders `merged`: elements found in `wanted` stand in its order; the rest keep the order of `before`.
pub(super) fn normalize(
    merge: ListMerge,
    merged: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
) -> Vec<Value> {
    let by = |list: &[Value], element: &Value| position(merge, list, element).unwrap_or(usize::MAX);
    let (mut named, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|element| position(merge, wanted, element).is_some());
    named.sort_by_key(|element| by(wanted, element));
    others.sort_by_key(|element| by(before, element));
    let mut all = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(name), Some(other)) = (named.peek(), others.peek()) {
        let known = position(merge, before, other).zip(position(merge, before, name));
        let next = if known.is_some_and(|(other, name)| other < name) {
            others.next()
        } else {
            named.next()
        };
        all.extend(next);
    }
    all.extend(named);
    all.extend(others);
    all
}
