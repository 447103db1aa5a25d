//! Which lists merge, and by what (`patchStrategy` and `patchMergeKey` in upstream's types).
//!
//! A list that is not here is replaced as a whole, as upstream replaces atomic lists.

use crate::kinds::Kind;

/// How a list is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListMerge {
    /// Elements are objects, identified by this field.
    Key(&'static str),
    /// Elements are plain values.
    Set,
}

/// Metadata of every kind.
const METADATA: [(&str, ListMerge); 2] = [
    ("metadata.finalizers", ListMerge::Set),
    ("metadata.ownerReferences", ListMerge::Key("uid")),
];

/// Lists of a container, below each of the three lists of containers.
const CONTAINER: [(&str, &str); 4] = [
    ("ports", "containerPort"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
];

const POD: [(&str, &str); 12] = [
    ("spec.containers", "name"),
    ("spec.initContainers", "name"),
    ("spec.ephemeralContainers", "name"),
    ("spec.volumes", "name"),
    ("spec.imagePullSecrets", "name"),
    ("spec.hostAliases", "ip"),
    ("spec.topologySpreadConstraints", "topologyKey"),
    ("spec.schedulingGates", "name"),
    ("spec.resourceClaims", "name"),
    ("status.conditions", "type"),
    ("status.podIPs", "ip"),
    ("status.hostIPs", "ip"),
];

const SERVICE: [(&str, &str); 2] = [("spec.ports", "port"), ("status.conditions", "type")];
const NODE: [(&str, &str); 2] = [("status.conditions", "type"), ("status.addresses", "type")];
const SERVICE_ACCOUNT: [(&str, &str); 2] = [("secrets", "name"), ("imagePullSecrets", "name")];
const NAMESPACE: [(&str, &str); 1] = [("status.conditions", "type")];

/// How the list at a path (field names joined by dots, indices left out) merges; `None` replaces it.
pub(crate) fn list_merge(kind: Kind, path: &str) -> Option<ListMerge> {
    if let Some((_, merge)) = METADATA.iter().find(|(known, _)| *known == path) {
        return Some(*merge);
    }
    let table: &[(&str, &'static str)] = match kind {
        Kind::Pod => {
            let container = [
                "spec.containers.",
                "spec.initContainers.",
                "spec.ephemeralContainers.",
            ];
            if let Some(rest) = container.iter().find_map(|prefix| path.strip_prefix(prefix)) {
                return CONTAINER
                    .iter()
                    .find(|(known, _)| *known == rest)
                    .map(|(_, key)| ListMerge::Key(key));
            }
            &POD
        }
        Kind::Service => &SERVICE,
        Kind::Node if path == "spec.podCIDRs" => return Some(ListMerge::Set),
        Kind::Node => &NODE,
        Kind::Namespace => &NAMESPACE,
        Kind::ServiceAccount => &SERVICE_ACCOUNT,
        Kind::ConfigMap
        | Kind::EndpointSlice
        | Kind::Event
        | Kind::Lease
        | Kind::Secret
        | Kind::ServiceCidr => &[],
    };
    table
        .iter()
        .find(|(known, _)| *known == path)
        .map(|(_, key)| ListMerge::Key(key))
}
