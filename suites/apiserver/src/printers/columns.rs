//! The columns of each kind.

use serde_json::{Value, json};

use crate::kinds::Kind;

/// Shown always.
const NARROW: u8 = 0;
/// Shown with `-o wide`.
const WIDE: u8 = 1;

type Column = (&'static str, &'static str, u8);

const NAME: Column = ("Name", "Name must be unique within a namespace.", NARROW);
const AGE: Column = (
    "Age",
    "CreationTimestamp is the server's time when this object was created.",
    NARROW,
);

const CONFIG_MAP: [Column; 3] = [NAME, ("Data", "How many keys the ConfigMap has.", NARROW), AGE];
const LEASE: [Column; 3] = [NAME, ("Holder", "The holder of the current lease.", NARROW), AGE];
const SECRET: [Column; 4] = [
    NAME,
    ("Type", "What the data is for.", NARROW),
    ("Data", "How many keys the Secret has.", NARROW),
    AGE,
];
const SERVICE_ACCOUNT: [Column; 2] = [NAME, AGE];
const ENDPOINT_SLICE: [Column; 5] = [
    NAME,
    (
        "AddressType",
        "The type of address carried by this EndpointSlice.",
        NARROW,
    ),
    (
        "Ports",
        "The ports exposed by each endpoint in this slice.",
        NARROW,
    ),
    ("Endpoints", "The endpoints in this slice.", NARROW),
    AGE,
];
const EVENT: [Column; 10] = [
    (
        "Last Seen",
        "The time at which the most recent occurrence of this event was recorded.",
        NARROW,
    ),
    ("Type", "Type of this event (Normal, Warning).", NARROW),
    ("Reason", "A short, machine understandable reason.", NARROW),
    ("Object", "The object that this event is about.", NARROW),
    (
        "Subobject",
        "The part of the object that this event is about.",
        WIDE,
    ),
    ("Source", "The component reporting this event.", WIDE),
    ("Message", "A human-readable description.", NARROW),
    (
        "First Seen",
        "The time at which the event was first recorded.",
        WIDE,
    ),
    ("Count", "The number of times this event has occurred.", WIDE),
    ("Name", "Name must be unique within a namespace.", WIDE),
];
const NAMESPACE: [Column; 3] = [NAME, ("Status", "The status of the namespace", NARROW), AGE];
const NODE: [Column; 10] = [
    NAME,
    ("Status", "The status of the node", NARROW),
    ("Roles", "The roles of the node", NARROW),
    AGE,
    ("Version", "Kubelet Version reported by the node.", NARROW),
    ("Internal-IP", "An address of the node inside the cluster.", WIDE),
    ("External-IP", "An address of the node outside the cluster.", WIDE),
    ("OS-Image", "OS Image reported by the node.", WIDE),
    ("Kernel-Version", "Kernel Version reported by the node.", WIDE),
    (
        "Container-Runtime",
        "ContainerRuntime Version reported by the node.",
        WIDE,
    ),
];
const POD: [Column; 9] = [
    NAME,
    (
        "Ready",
        "The aggregate readiness state of this pod for accepting traffic.",
        NARROW,
    ),
    (
        "Status",
        "The aggregate status of the containers in this pod.",
        NARROW,
    ),
    (
        "Restarts",
        "The number of times the containers in this pod have been restarted.",
        NARROW,
    ),
    AGE,
    ("IP", "The address allocated to the pod.", WIDE),
    ("Node", "The node in which this pod is scheduled.", WIDE),
    (
        "Nominated Node",
        "The node that this pod preempts others on.",
        WIDE,
    ),
    (
        "Readiness Gates",
        "Conditions that this pod's readiness also depends on.",
        WIDE,
    ),
];
const SERVICE: [Column; 7] = [
    NAME,
    ("Type", "How the Service is exposed.", NARROW),
    ("Cluster-IP", "The IP address of the service.", NARROW),
    (
        "External-IP",
        "Addresses at which it is reached from outside.",
        NARROW,
    ),
    (
        "Port(s)",
        "The list of ports that are exposed by this service.",
        NARROW,
    ),
    AGE,
    (
        "Selector",
        "Route service traffic to pods with these labels.",
        WIDE,
    ),
];
const SERVICE_CIDR: [Column; 3] = [
    NAME,
    ("CIDRs", "The ranges that cluster IPs are from.", NARROW),
    AGE,
];

/// `columnDefinitions`.
pub(super) fn definitions(kind: Kind) -> Value {
    let columns: &[Column] = match kind {
        Kind::ConfigMap => &CONFIG_MAP,
        Kind::Lease => &LEASE,
        Kind::Secret => &SECRET,
        Kind::ServiceAccount => &SERVICE_ACCOUNT,
        Kind::EndpointSlice => &ENDPOINT_SLICE,
        Kind::Event => &EVENT,
        Kind::Namespace => &NAMESPACE,
        Kind::Node => &NODE,
        Kind::Pod => &POD,
        Kind::Service => &SERVICE,
        Kind::ServiceCidr => &SERVICE_CIDR,
    };
    let definition = |(name, description, priority): &Column| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({"name": name, "type": "string", "format": format, "description": description,
               "priority": priority})
    };
    columns.iter().map(definition).collect()
}
