//! What part of the CPU of a cluster each zone has.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::endpoints::ZONE;

/// Nodes that count for nothing.
const EXCLUDED: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
/// The part of all CPU that each zone has.
pub(super) type Shares = BTreeMap<String, f64>;

/// Zone and thousandths of a CPU of a node; nothing for one that does not count.
pub(super) fn capacity(node: &Node) -> Option<(Option<&str>, i64)> {
    let excluded = EXCLUDED.iter().any(|label| node.labels().contains_key(*label));
    let status = node.status.as_ref()?;
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    if excluded || ready.is_none_or(|ready| ready.status != "True") {
        return None;
    }
    let zone = node
        .labels()
        .get(ZONE)
        .map(String::as_str)
        .filter(|zone| !zone.is_empty());
    let cpu = status.allocatable.as_ref().and_then(|all| all.get("cpu"));
    Some((zone, cpu.and_then(|cpu| thousandths(&cpu.0)).unwrap_or_default()))
}

/// A quantity (`apimachinery/pkg/api/resource`) in thousandths, rounded up.
fn thousandths(quantity: &str) -> Option<i64> {
    let digits = |character: char| !character.is_ascii_digit() && character != '.';
    let (number, factor) = match quantity.parse::<f64>() {
        Ok(number) => (number, 1.0),
        Err(_) => {
            let (number, suffix) = quantity.split_at(quantity.find(digits)?);
            let factor = match suffix {
                "n" => 1e-9,
                "u" => 1e-6,
                "m" => 1e-3,
                "k" => 1e3,
                "Ki" => 1024.0,
                _ => return None,
            };
            (number.parse().ok()?, factor)
        }
    };
    // A trillion CPUs are no quantity of a node.
    let all = (number * factor * 1000.0).ceil();
    #[expect(clippy::cast_possible_truncation, reason = "it is in range")]
    (0.0..1e15).contains(&all).then_some(all as i64)
}

/// Each zone's share of the CPU. `None` if a ready node has no zone or no CPU, or if all are in one zone.
pub(super) fn shares<'a>(nodes: impl Iterator<Item = &'a Node>) -> Option<Shares> {
    let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
    for (zone, cpu) in nodes.filter_map(capacity) {
        let zone = zone.filter(|_| cpu > 0)?;
        *by_zone.entry(zone.to_owned()).or_default() += cpu;
    }
    #[expect(clippy::cast_precision_loss, reason = "as upstream divides")]
    let float = |number: i64| number as f64;
    let total = float(by_zone.values().sum());
    let share = |(zone, cpu)| (zone, float(cpu) / total);
    (by_zone.len() > 1).then(|| by_zone.into_iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_upstream_writes_them() {
        for (text, expected) in [
            ("4", 4000),
            ("3920m", 3920),
            ("1.5", 1500),
            ("100n", 1),
            ("1e3", 1_000_000),
        ] {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
        for text in ["", "much", "-1", "4x"] {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }
}
