//! Packs endpoints into slices, with as few writes as upstream's controller makes.
//!
//! Source: `staging/src/k8s.io/endpointslice/reconciler.go` (`reconcileByPortMapping`, `finalize`) of Kubernetes 1.36:
//! what is in a slice stays there; slices that are written anyway are filled first; what is left goes into one slice that
//! has room for all of it, or into new ones; a slice that would be deleted while another is created is rewritten.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

use super::endpoints::Group;

/// The writes for one service and one IP family.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Writes {
    /// Endpoints and ports of new slices.
    pub(crate) create: Vec<Group>,
    pub(crate) update: Vec<(EndpointSlice, Group)>,
    pub(crate) delete: Vec<EndpointSlice>,
}

/// Compares existing slices with desired endpoints. `stale`: whether a slice must be written for its metadata.
pub(crate) fn pack(
    existing: &[EndpointSlice],
    groups: Vec<Group>,
    most: usize,
    stale: impl Fn(&EndpointSlice) -> bool,
) -> Writes {
    let mut writes = Writes::default();
    let mut left: Vec<&EndpointSlice> = existing.iter().collect();
    for group in groups {
        let mine = |slice: &EndpointSlice| ports_of(slice) == group.ports && !is_empty(slice);
        let (same, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|slice| mine(slice));
        left = others;
        pack_group(&same, group, most, &stale, &mut writes);
    }
    // A service without endpoints has one empty slice.
    let placeholder = || Group {
        ports: Vec::new(),
        endpoints: Vec::new(),
    };
    let kept = existing.len() - left.len() - writes.delete.len();
    if kept == 0 && writes.create.is_empty() {
        match left
            .iter()
            .position(|slice| is_empty(slice) && ports_of(slice).is_empty() && !stale(slice))
        {
            Some(position) => drop(left.swap_remove(position)),
            None => writes.create.push(placeholder()),
        }
    }
    writes.delete.extend(left.into_iter().cloned());
    while !writes.create.is_empty() && !writes.delete.is_empty() {
        let slice = writes.delete.remove(0);
        let group = writes.create.remove(0);
        writes.update.push((slice, group));
    }
    writes
}

fn pack_group(
    existing: &[&EndpointSlice],
    group: Group,
    most: usize,
    stale: &impl Fn(&EndpointSlice) -> bool,
    writes: &mut Writes,
) {
    let Group { ports, endpoints } = group;
    let mut missing: Vec<Option<Endpoint>> = endpoints.into_iter().map(Some).collect();
    let mut updated: Vec<(EndpointSlice, Vec<Endpoint>)> = Vec::new();
    let mut unchanged: Vec<(EndpointSlice, Vec<Endpoint>)> = Vec::new();
    for slice in existing {
        let mut kept = Vec::new();
        for old in endpoints_of(slice) {
            // An endpoint that is in two slices stays in the first.
            let wanted = missing
                .iter_mut()
                .find(|new| new.as_ref().is_some_and(|new| is_same(old, new)));
            kept.extend(wanted.and_then(Option::take));
        }
        if kept.is_empty() {
            writes.delete.push((*slice).clone());
        } else if kept == endpoints_of(slice) && !stale(slice) {
            unchanged.push(((*slice).clone(), kept));
        } else {
            updated.push(((*slice).clone(), kept));
        }
    }
    let mut missing: Vec<Endpoint> = missing.into_iter().flatten().collect();
    // The fullest first, so that as few as possible stay partly filled.
    updated.sort_by_key(|(_, endpoints)| std::cmp::Reverse(endpoints.len()));
    for (_, endpoints) in &mut updated {
        let room = most.saturating_sub(endpoints.len()).min(missing.len());
        endpoints.extend(missing.drain(..room));
    }
    if !missing.is_empty() {
        let fitting = unchanged
            .iter()
            .enumerate()
            .filter(|(_, (_, endpoints))| endpoints.len() + missing.len() <= most)
            .max_by_key(|(_, (_, endpoints))| endpoints.len())
            .map(|(position, _)| position);
        if let Some(position) = fitting {
            let (slice, mut endpoints) = unchanged.swap_remove(position);
            endpoints.append(&mut missing);
            updated.push((slice, endpoints));
        }
    }
    let new = |endpoints| Group {
        ports: ports.clone(),
        endpoints,
    };
    writes.update.extend(
        updated
            .into_iter()
            .map(|(slice, endpoints)| (slice, new(endpoints))),
    );
    while !missing.is_empty() {
        let rest = missing.split_off(most.min(missing.len()));
        writes.create.push(new(std::mem::replace(&mut missing, rest)));
    }
}

fn ports_of(slice: &EndpointSlice) -> Vec<EndpointPort> {
    let mut ports = slice.ports.clone().unwrap_or_default();
    ports.sort_by(|a, b| (&a.name, &a.protocol, a.port).cmp(&(&b.name, &b.protocol, b.port)));
    ports
}

fn is_empty(slice: &EndpointSlice) -> bool {
    endpoints_of(slice).is_empty()
}

fn endpoints_of(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

/// Whether two states are of the same endpoint.
fn is_same(a: &Endpoint, b: &Endpoint) -> bool {
    let pod = |endpoint: &Endpoint| {
        let pod = endpoint.target_ref.as_ref()?;
        Some((pod.namespace.clone(), pod.name.clone()))
    };
    a.addresses == b.addresses && a.hostname == b.hostname && pod(a) == pod(b)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn endpoint(name: &str) -> Endpoint {
        Endpoint {
            addresses: vec![format!("10.0.0.{name}")],
            target_ref: Some(ObjectReference {
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            }),
            ..Endpoint::default()
        }
    }

    fn ports(number: i32) -> Vec<EndpointPort> {
        vec![EndpointPort {
            port: Some(number),
            ..EndpointPort::default()
        }]
    }

    /// `8080:1,2` is a slice or a group; `-` has neither ports nor endpoints.
    fn group(text: &str) -> Group {
        let Some((port, names)) = text.split_once(':') else {
            return Group {
                ports: Vec::new(),
                endpoints: Vec::new(),
            };
        };
        Group {
            ports: ports(port.parse().expect("a port")),
            endpoints: names.split(',').map(endpoint).collect(),
        }
    }

    fn slice(number: usize, text: &str) -> EndpointSlice {
        let Group { ports, endpoints } = group(text);
        let mut slice = EndpointSlice {
            ports: Some(ports),
            endpoints: Some(endpoints),
            ..EndpointSlice::default()
        };
        slice.metadata.name = Some(format!("s{number}"));
        slice
    }

    fn text(group: &Group) -> String {
        let names: Vec<&str> = group
            .endpoints
            .iter()
            .map(|one| &one.addresses[0]["10.0.0.".len()..])
            .collect();
        match group.ports.first().and_then(|port| port.port) {
            Some(port) => format!("{port}:{}", names.join(",")),
            None => "-".to_owned(),
        }
    }

    fn shown(writes: &Writes) -> Vec<String> {
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
        let created = writes.create.iter().map(|group| format!("+ {}", text(group)));
        let updated = writes
            .update
            .iter()
            .map(|(slice, group)| format!("{} {}", name(slice), text(group)));
        let deleted = writes.delete.iter().map(|slice| format!("- {}", name(slice)));
        created.chain(updated).chain(deleted).collect()
    }

    /// A claim, slices that are there, groups that should be, and what is written.
    type Row = (
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
        &'static [&'static str],
    );

    #[test]
    fn endpoints_stay_where_they_are_and_few_slices_are_written() {
        let rows: [Row; 13] = [
            ("no endpoints yet", &[], &[], &["+ -"]),
            ("no endpoints still", &["-"], &[], &[]),
            ("the first endpoint", &["-"], &["80:1"], &["s0 80:1"]),
            ("nothing changed", &["80:1,2"], &["80:1,2"], &[]),
            ("the last one left", &["80:1"], &[], &["s0 -"]),
            ("one came", &["80:1"], &["80:1,2"], &["s0 80:1,2"]),
            ("one left", &["80:1,2"], &["80:2"], &["s0 80:2"]),
            ("more than fit", &[], &["80:1,2,3,4"], &["+ 80:1,2,3", "+ 80:4"]),
            (
                "into the fullest with room",
                &["80:1", "80:2,3"],
                &["80:1,2,3,4"],
                &["s1 80:2,3,4"],
            ),
            (
                "into the one that is written anyway",
                &["80:1,2,3", "80:4,5"],
                &["80:1,2,4,5,6"],
                &["s0 80:1,2,6"],
            ),
            ("no room", &["80:1,2,3"], &["80:1,2,3,4"], &["+ 80:4"]),
            (
                "other ports",
                &["80:1,2"],
                &["80:1", "81:2"],
                &["+ 81:2", "s0 80:1"],
            ),
            (
                "all moved to other ports",
                &["80:1,2"],
                &["81:1,2"],
                &["s0 81:1,2"],
            ),
        ];
        for (claim, existing, wanted, expected) in rows {
            let existing: Vec<_> = existing
                .iter()
                .enumerate()
                .map(|(n, text)| slice(n, text))
                .collect();
            let groups = wanted.iter().map(|text| group(text)).collect();
            let mut found = shown(&pack(&existing, groups, 3, |_| false));
            found.sort();
            assert_eq!(found, expected, "{claim}");
        }
    }

    #[test]
    fn an_emptied_slice_goes_while_others_stay_and_a_double_endpoint_is_left_in_one() {
        let existing = [slice(0, "80:1,2,3"), slice(1, "80:4"), slice(2, "80:3")];
        let writes = pack(&existing, vec![group("80:1,2,3")], 3, |_| false);
        assert_eq!(shown(&writes), ["- s1", "- s2"]);
    }

    #[test]
    fn stale_metadata_is_written() {
        let existing = [slice(0, "80:1")];
        let writes = pack(&existing, vec![group("80:1")], 3, |_| true);
        assert_eq!(shown(&writes), ["s0 80:1"]);
        let writes = pack(&[slice(0, "-")], Vec::new(), 3, |_| true);
        assert_eq!(shown(&writes), ["s0 -"]);
    }
}
