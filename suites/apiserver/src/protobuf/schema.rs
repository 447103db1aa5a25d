//! The fields of messages, by number (`generated.proto` of k8s.io/api and k8s.io/apimachinery, which promise
//! never to change them).

/// How a field is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Text,
    /// A pointer in Go: an empty text is a value.
    OptionalText,
    Number,
    OptionalNumber,
    Flag,
    OptionalFlag,
    Texts,
    TextMap,
    /// Values are bytes; in JSON, base64.
    BytesMap,
    Time {
        micro: bool,
    },
    IntOrText,
    Message(Message),
    Messages(Message),
}

/// Number, JSON name and shape of each field.
pub(super) type Message = &'static [(u64, &'static str, Shape)];

use Shape::{
    BytesMap, Flag, IntOrText, Message as One, Messages as Many, Number, OptionalFlag, OptionalNumber,
    OptionalText, Text, TextMap, Texts,
};

const TIME: Shape = Shape::Time { micro: false };
const MICRO_TIME: Shape = Shape::Time { micro: true };

pub(super) const ENTRY: Message = &[(1, "key", Text), (2, "value", Text)];
pub(super) const TIMESTAMP: Message = &[(1, "seconds", Number), (2, "nanos", Number)];
pub(super) const INT_OR_STRING: Message = &[(1, "type", Number), (2, "intVal", Number), (3, "strVal", Text)];

const OWNER: Message = &[
    (5, "apiVersion", Text),
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (6, "controller", OptionalFlag),
    (7, "blockOwnerDeletion", OptionalFlag),
];

// Managed fields are not kept here.
const META: Message = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Number),
    (8, "creationTimestamp", TIME),
    (9, "deletionTimestamp", TIME),
    (10, "deletionGracePeriodSeconds", OptionalNumber),
    (11, "labels", TextMap),
    (12, "annotations", TextMap),
    (13, "ownerReferences", Many(OWNER)),
    (14, "finalizers", Texts),
];

const CONDITION: Message = &[
    (1, "type", Text),
    (2, "status", Text),
    (3, "observedGeneration", Number),
    (4, "lastTransitionTime", TIME),
    (5, "reason", Text),
    (6, "message", Text),
];

const NAMESPACE_CONDITION: Message = &[
    (1, "type", Text),
    (2, "status", Text),
    (4, "lastTransitionTime", TIME),
    (5, "reason", Text),
    (6, "message", Text),
];

const NAMESPACE: Message = &[
    (1, "metadata", One(META)),
    (2, "spec", One(&[(1, "finalizers", Texts)])),
    (
        3,
        "status",
        One(&[(1, "phase", Text), (2, "conditions", Many(NAMESPACE_CONDITION))]),
    ),
];

const SERVICE_PORT: Message = &[
    (1, "name", Text),
    (2, "protocol", Text),
    (3, "port", Number),
    (4, "targetPort", IntOrText),
    (5, "nodePort", Number),
    (6, "appProtocol", OptionalText),
];

const AFFINITY: Message = &[(1, "clientIP", One(&[(1, "timeoutSeconds", OptionalNumber)]))];

const SERVICE_SPEC: Message = &[
    (1, "ports", Many(SERVICE_PORT)),
    (2, "selector", TextMap),
    (3, "clusterIP", Text),
    (4, "type", Text),
    (5, "externalIPs", Texts),
    (7, "sessionAffinity", Text),
    (8, "loadBalancerIP", Text),
    (9, "loadBalancerSourceRanges", Texts),
    (10, "externalName", Text),
    (11, "externalTrafficPolicy", Text),
    (12, "healthCheckNodePort", Number),
    (13, "publishNotReadyAddresses", Flag),
    (14, "sessionAffinityConfig", One(AFFINITY)),
    (17, "ipFamilyPolicy", OptionalText),
    (18, "clusterIPs", Texts),
    (19, "ipFamilies", Texts),
    (20, "allocateLoadBalancerNodePorts", OptionalFlag),
    (21, "loadBalancerClass", OptionalText),
    (22, "internalTrafficPolicy", OptionalText),
    (23, "trafficDistribution", OptionalText),
];

const PORT_STATUS: Message = &[
    (1, "port", Number),
    (2, "protocol", Text),
    (3, "error", OptionalText),
];
const INGRESS: Message = &[
    (1, "ip", Text),
    (2, "hostname", Text),
    (3, "ipMode", OptionalText),
    (4, "ports", Many(PORT_STATUS)),
];

const SERVICE: Message = &[
    (1, "metadata", One(META)),
    (2, "spec", One(SERVICE_SPEC)),
    (
        3,
        "status",
        One(&[
            (1, "loadBalancer", One(&[(1, "ingress", Many(INGRESS))])),
            (2, "conditions", Many(CONDITION)),
        ]),
    ),
];

const REFERENCE: Message = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];

const ENDPOINT: Message = &[
    (1, "addresses", Texts),
    (
        2,
        "conditions",
        One(&[
            (1, "ready", OptionalFlag),
            (2, "serving", OptionalFlag),
            (3, "terminating", OptionalFlag),
        ]),
    ),
    (3, "hostname", OptionalText),
    (4, "targetRef", One(REFERENCE)),
    (5, "deprecatedTopology", TextMap),
    (6, "nodeName", OptionalText),
    (7, "zone", OptionalText),
    (
        8,
        "hints",
        One(&[
            (1, "forZones", Many(&[(1, "name", Text)])),
            (2, "forNodes", Many(&[(1, "name", Text)])),
        ]),
    ),
];

const ENDPOINT_SLICE: Message = &[
    (1, "metadata", One(META)),
    (2, "endpoints", Many(ENDPOINT)),
    (
        3,
        "ports",
        Many(&[
            (1, "name", OptionalText),
            (2, "protocol", OptionalText),
            (3, "port", OptionalNumber),
            (4, "appProtocol", OptionalText),
        ]),
    ),
    (4, "addressType", Text),
];

const EVENT: Message = &[
    (1, "metadata", One(META)),
    (2, "involvedObject", One(REFERENCE)),
    (3, "reason", Text),
    (4, "message", Text),
    (5, "source", One(&[(1, "component", Text), (2, "host", Text)])),
    (6, "firstTimestamp", TIME),
    (7, "lastTimestamp", TIME),
    (8, "count", Number),
    (9, "type", Text),
    (10, "eventTime", MICRO_TIME),
    (
        11,
        "series",
        One(&[(1, "count", Number), (2, "lastObservedTime", MICRO_TIME)]),
    ),
    (12, "action", Text),
    (13, "related", One(REFERENCE)),
    (14, "reportingComponent", Text),
    (15, "reportingInstance", Text),
];

const DELETE_OPTIONS: Message = &[
    (1, "gracePeriodSeconds", OptionalNumber),
    (
        2,
        "preconditions",
        One(&[(1, "uid", OptionalText), (2, "resourceVersion", OptionalText)]),
    ),
    (3, "orphanDependents", OptionalFlag),
    (4, "propagationPolicy", OptionalText),
    (5, "dryRun", Texts),
];

const CONFIG_MAP: Message = &[
    (1, "metadata", One(META)),
    (2, "data", TextMap),
    (3, "binaryData", BytesMap),
    (4, "immutable", OptionalFlag),
];

const SECRET: Message = &[
    (1, "metadata", One(META)),
    (2, "data", BytesMap),
    (3, "type", Text),
    (4, "stringData", TextMap),
    (5, "immutable", OptionalFlag),
];

const SERVICE_ACCOUNT: Message = &[
    (1, "metadata", One(META)),
    (2, "secrets", Many(REFERENCE)),
    (3, "imagePullSecrets", Many(&[(1, "name", Text)])),
    (4, "automountServiceAccountToken", OptionalFlag),
];

const LEASE: Message = &[
    (1, "metadata", One(META)),
    (
        2,
        "spec",
        One(&[
            (1, "holderIdentity", OptionalText),
            (2, "leaseDurationSeconds", OptionalNumber),
            (3, "acquireTime", MICRO_TIME),
            (4, "renewTime", MICRO_TIME),
            (5, "leaseTransitions", OptionalNumber),
            (6, "strategy", OptionalText),
            (7, "preferredHolder", OptionalText),
        ]),
    ),
];

/// The message of a kind, if it is read.
pub(super) fn of_kind(kind: &str) -> Option<Message> {
    match kind {
        "ConfigMap" => Some(CONFIG_MAP),
        "DeleteOptions" => Some(DELETE_OPTIONS),
        "EndpointSlice" => Some(ENDPOINT_SLICE),
        "Event" => Some(EVENT),
        "Lease" => Some(LEASE),
        "Namespace" => Some(NAMESPACE),
        "Secret" => Some(SECRET),
        "Service" => Some(SERVICE),
        "ServiceAccount" => Some(SERVICE_ACCOUNT),
        _ => None,
    }
}
