//! Hints by the CPU of zones: `service.kubernetes.io/topology-mode: Auto` (KEP-2433).
//!
//! Each zone gets the same share of the endpoints as it has of the CPU of all ready nodes. If that would overload an endpoint
//! by more than 20 %, none gets a hint. Source: `staging/src/k8s.io/endpointslice/topologycache` of Kubernetes 1.36, without
//! its Events. Unlike there, every service is reconciled when a node changes.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone},
};
use kube::ResourceExt;

use super::{endpoints::Group, pack::Writes, zones::Shares};

const MODE: &str = "service.kubernetes.io/topology-mode";
/// Its name until 1.27, which still has precedence.
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
/// How much more than its even share an endpoint may get.
const OVERLOAD: f64 = 0.2;

/// How many endpoints a zone should have, and how many at most.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    most: usize,
    desired: f64,
}

/// Whether a service wants such hints.
pub(super) fn is_auto(service: &Service) -> bool {
    let annotations = service.annotations();
    let mode = annotations.get(HINTS).or_else(|| annotations.get(MODE));
    matches!(mode.map(String::as_str), Some("Auto" | "auto"))
}

/// Sets the hints of slices that are written, and adds unchanged slices whose hints no longer fit. All are of one IP family.
pub(super) fn hint(writes: &mut Writes, unchanged: Vec<EndpointSlice>, shares: Option<&Shares>) {
    let untouched = || {
        unchanged
            .iter()
            .flat_map(|slice| slice.endpoints.iter().flatten())
    };
    let count = written(writes)
        .map(|one| &*one)
        .filter(|one| is_ready(one))
        .count()
        + untouched().filter(|one| is_ready(one)).count();
    let Some(allocations) = shares.and_then(|shares| allocations(shares, count)) else {
        return remove(writes, unchanged);
    };
    let mut allocated: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for slice in unchanged {
        match fitting(&slice, &allocated, &allocations) {
            Some(hints) => {
                for (zone, number) in hints {
                    *allocated.entry(zone).or_default() += number;
                }
                kept.push(slice);
            }
            None => rewrite(writes, slice),
        }
    }
    let mut placed = true;
    for endpoint in written(writes) {
        endpoint.hints = None;
        if is_ready(endpoint) {
            let zone = endpoint.zone.clone().filter(|zone| !zone.is_empty());
            placed &= zone.is_some();
            if let Some(zone) = zone {
                *allocated.entry(zone.clone()).or_default() += 1;
                endpoint.hints = Some(for_zone(zone));
            }
        }
    }
    if !placed {
        return remove(writes, kept);
    }
    redistribute(writes, &allocations, &allocated);
}

/// Hints endpoints of zones with too many at zones with too few.
fn redistribute(
    writes: &mut Writes,
    allocations: &BTreeMap<String, Allocation>,
    allocated: &BTreeMap<String, usize>,
) {
    let (mut giving, mut receiving) = exchange(allocations, allocated);
    for endpoint in written(writes).filter(|endpoint| is_ready(endpoint)) {
        let left = endpoint.zone.as_ref().and_then(|zone| giving.get_mut(zone));
        let Some(left) = left.filter(|left| **left > 0) else {
            continue;
        };
        let Some((zone, needed)) = receiving.iter_mut().find(|(_, needed)| **needed > 0) else {
            return;
        };
        endpoint.hints = Some(for_zone(zone.clone()));
        *left -= 1;
        *needed -= 1;
    }
}

/// How many endpoints each zone gives to others, and how many each gets, as long as that brings both nearer to their share.
fn exchange(
    allocations: &BTreeMap<String, Allocation>,
    allocated: &BTreeMap<String, usize>,
) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    // Above zero: too many.
    let mut surplus: BTreeMap<&String, f64> = allocations
        .iter()
        .map(|(zone, wanted)| {
            (
                zone,
                number(allocated.get(zone).copied().unwrap_or_default()) - wanted.desired,
            )
        })
        .collect();
    let (mut giving, mut receiving) = (BTreeMap::new(), BTreeMap::new());
    loop {
        let by = |a: &(&&String, &f64), b: &(&&String, &f64)| a.1.total_cmp(b.1);
        let most = surplus.iter().max_by(by).map(|(zone, surplus)| (*zone, *surplus));
        let least = surplus
            .iter()
            .min_by(by)
            .map(|(zone, surplus)| (*zone, -*surplus));
        let (Some((giver, gives)), Some((receiver, needs))) = (most, least) else {
            return (giving, receiving);
        };
        if gives.max(needs) < 1.0 || gives.min(needs) < 0.5 {
            return (giving, receiving);
        }
        for (zone, change, counts) in [(giver, -1.0, &mut giving), (receiver, 1.0, &mut receiving)] {
            *counts.entry(zone.clone()).or_default() += 1;
            *surplus.entry(zone).or_default() += change;
        }
    }
}

/// Shares out a number of endpoints. `None` if there are too few for every zone.
fn allocations(shares: &Shares, endpoints: usize) -> Option<BTreeMap<String, Allocation>> {
    if shares.len() > endpoints {
        return None;
    }
    let desired = |share: f64| share * number(endpoints);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of the number of endpoints"
    )]
    let least = |share: f64| (desired(share) * (1.0 / (1.0 + OVERLOAD))).ceil() as usize;
    let all: usize = shares.values().map(|share| least(*share)).sum();
    let free = endpoints.checked_sub(all)?;
    let allocation = |share: f64| Allocation {
        most: least(share) + free,
        desired: desired(share).max(number(least(share))),
    };
    Some(
        shares
            .iter()
            .map(|(zone, share)| (zone.clone(), allocation(*share)))
            .collect(),
    )
}

/// The number of hints for each zone in a slice. `None` if they can't stay: one is missing, or a zone would get too many.
fn fitting(
    slice: &EndpointSlice,
    allocated: &BTreeMap<String, usize>,
    allocations: &BTreeMap<String, Allocation>,
) -> Option<BTreeMap<String, usize>> {
    let mut hints: BTreeMap<String, usize> = BTreeMap::new();
    for endpoint in slice.endpoints.iter().flatten().filter(|one| is_ready(one)) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_ref()?;
        if zones.is_empty() {
            return None;
        }
        for zone in zones {
            *hints.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = hints.iter().all(|(zone, number)| {
        let before = allocated.get(zone).copied().unwrap_or_default();
        allocations
            .get(zone)
            .is_some_and(|allocation| number + before <= allocation.most)
    });
    fits.then_some(hints)
}

/// Removes all hints.
fn remove(writes: &mut Writes, unchanged: Vec<EndpointSlice>) {
    let has_hints = |slice: &EndpointSlice| slice.endpoints.iter().flatten().any(|one| one.hints.is_some());
    for slice in unchanged.into_iter().filter(has_hints) {
        rewrite(writes, slice);
    }
    for endpoint in written(writes) {
        endpoint.hints = None;
    }
}

/// Adds an unchanged slice to the writes, for its hints.
fn rewrite(writes: &mut Writes, slice: EndpointSlice) {
    let group = Group {
        ports: slice.ports.clone().unwrap_or_default(),
        endpoints: slice.endpoints.clone().unwrap_or_default(),
    };
    writes.update.push((slice, group));
}

/// All endpoints in the writes.
fn written(writes: &mut Writes) -> impl Iterator<Item = &mut Endpoint> {
    let updated = writes.update.iter_mut().map(|(_, group)| group);
    writes
        .create
        .iter_mut()
        .chain(updated)
        .flat_map(|group| &mut group.endpoints)
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .and_then(|conditions| conditions.ready)
        == Some(true)
}

fn for_zone(name: String) -> EndpointHints {
    EndpointHints {
        for_zones: Some(vec![ForZone { name }]),
        ..EndpointHints::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "endpoints of a service are few")]
fn number(endpoints: usize) -> f64 {
    endpoints as f64
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointConditions};
    use serde_json::json;

    use super::{
        super::{endpoints::ZONE, zones::shares},
        *,
    };

    /// `a:4 b:2` are zones with so many CPUs.
    fn zones(text: &str) -> Option<Shares> {
        let node = |(zone, cpu): (&str, &str)| -> Node {
            serde_json::from_value(json!({
                "metadata": {"labels": {ZONE: zone}},
                "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .expect("a node")
        };
        let nodes: Vec<Node> = text
            .split(' ')
            .filter_map(|one| one.split_once(':'))
            .map(node)
            .collect();
        shares(nodes.iter())
    }

    /// `aab` are three endpoints in two zones, `A` one of `a` that is not ready, `-` one without a zone.
    fn endpoints(text: &str) -> Vec<Endpoint> {
        let endpoint = |zone: char| Endpoint {
            zone: (zone != '-').then(|| zone.to_ascii_lowercase().to_string()),
            conditions: Some(EndpointConditions {
                ready: Some(!zone.is_ascii_uppercase()),
                ..EndpointConditions::default()
            }),
            ..Endpoint::default()
        };
        text.chars().map(endpoint).collect()
    }

    /// The hints of endpoints, one character each.
    fn shown(endpoints: &[Endpoint]) -> String {
        let hint = |endpoint: &Endpoint| {
            let zones = endpoint.hints.as_ref().and_then(|hints| hints.for_zones.as_ref());
            zones.map_or("-".to_owned(), |zones| {
                zones.iter().map(|zone| zone.name.as_str()).collect()
            })
        };
        endpoints.iter().map(hint).collect()
    }

    fn slice(text: &str, hints: &str) -> EndpointSlice {
        let mut endpoints = endpoints(text);
        for (endpoint, zone) in endpoints.iter_mut().zip(hints.chars()) {
            endpoint.hints = (zone != '-').then(|| for_zone(zone.to_string()));
        }
        EndpointSlice {
            endpoints: Some(endpoints),
            ..EndpointSlice::default()
        }
    }

    #[test]
    fn new_endpoints_are_shared_out_by_the_cpu_of_the_zones() {
        let rows = [
            ("each zone has what it needs", "a:2 b:2", "aabb", "aabb"),
            ("one is not ready", "a:2 b:2", "aabbB", "aabb-"),
            ("a zone without endpoints", "a:2 b:2", "aaaa", "bbaa"),
            ("more CPU, more endpoints", "a:4 b:2", "abbbbb", "aaaabb"),
            ("too few for every zone", "a:1 b:1 c:1", "ab", "--"),
            ("an odd number overloads one of them", "a:1 b:1", "aab", "---"),
            (
                "small enough an overload",
                "a:1 b:1",
                "aaaaabbbbbb",
                "aaaaabbbbbb",
            ),
            ("all CPU in one zone", "a:4", "aaaa", "----"),
            ("a node that does not say what it has", "a:4 b:0", "aabb", "----"),
            ("an endpoint that is nowhere", "a:2 b:2", "aab-", "----"),
        ];
        for (claim, cpu, wanted, expected) in rows {
            let mut writes = Writes::default();
            writes.create.push(Group {
                ports: Vec::new(),
                endpoints: endpoints(wanted),
            });
            hint(&mut writes, Vec::new(), zones(cpu).as_ref());
            assert_eq!(shown(&writes.create[0].endpoints), expected, "{claim}");
        }
    }

    #[test]
    fn hints_that_fit_stay_and_others_are_written_again() {
        let rows = [
            ("they fit", "a:2 b:2", "aabb", "aabb", None),
            ("one has none yet", "a:2 b:2", "aabb", "aab-", Some("aabb")),
            ("a zone is gone", "a:2 b:2", "aabb", "aacc", Some("aabb")),
            ("too many for one zone", "a:2 b:2", "aabb", "aaab", Some("aabb")),
            ("there can be none", "a:2", "aabb", "aabb", Some("----")),
            ("there were none, and can be none", "a:2", "aabb", "----", None),
        ];
        for (claim, cpu, there, hints, expected) in rows {
            let mut writes = Writes::default();
            hint(&mut writes, vec![slice(there, hints)], zones(cpu).as_ref());
            let written = writes.update.first().map(|(_, group)| shown(&group.endpoints));
            assert_eq!(written.as_deref(), expected, "{claim}");
        }
    }
}
