//! API objects as JSON → the model's types, part by part.
//!
//! An object from the API can hold what this agent doesn't expect: a field that a newer API server allows, a
//! list that is `null`, an address that is none. Decoding a whole object into a strict type would lose all of it
//! for one such field, and a whole list for one such object. So each part stands for itself: what can be read is
//! used, what can't is left out and named in a [`Defect`].

use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    findings::{Finding, Reason},
    model::{Endpoint, Node, Service, ServicePort, Slice, SlicePort},
    names::ObjectName,
    transport::{Family, Protocol},
};

/// Label of an EndpointSlice: the Service it belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a Service that another proxy takes care of (KEP-2447).
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of a Node: the zone that it is in.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A part of an object that could not be used, and was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What kind of.
    pub reason: Reason,
    /// Path of the field.
    pub field: String,
    /// What was expected, and what was found.
    pub problem: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl From<Defect> for Finding {
    fn from(defect: Defect) -> Self {
        Self {
            reason: defect.reason,
            message: defect.to_string(),
        }
    }
}

/// An object, as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<T> {
    /// What could be read.
    pub object: T,
    /// What couldn't.
    pub defects: Vec<Defect>,
}

/// Namespace and name of an object.
///
/// # Errors
/// Without a name it can't be told from others.
pub fn name(object: &Value) -> Result<ObjectName, Defect> {
    let part = |field: &str| object["metadata"][field].as_str().filter(|part| !part.is_empty());
    match (part("namespace"), part("name")) {
        (Some(namespace), Some(name)) => Ok(ObjectName::new(namespace, name)),
        (None, _) => Err(expected(
            "metadata.namespace",
            "a name",
            &object["metadata"]["namespace"],
        )),
        (_, None) => Err(expected("metadata.name", "a name", &object["metadata"]["name"])),
    }
}

/// A Service.
///
/// # Errors
/// It has no name.
pub fn service(object: &Value) -> Result<Decoded<Service>, Defect> {
    let name = name(object)?;
    let mut defects = Vec::new();
    let created = &object["metadata"]["creationTimestamp"];
    let created = match created {
        Value::Null => None,
        value => Time::deserialize(value)
            .map(|time| time.0.as_second())
            .map_err(|_| defects.push(expected("metadata.creationTimestamp", "a time", value)))
            .ok(),
    };
    let spec = &object["spec"];
    let cluster_ips = match balanced(object) {
        true => cluster_ips(spec, &mut defects),
        false => Vec::new(),
    };
    let ports = service_ports(&spec["ports"], &mut defects);
    Ok(Decoded {
        object: Service {
            created,
            cluster_ips,
            ports,
            ..Service::new(name)
        },
        defects,
    })
}

/// An EndpointSlice.
///
/// # Errors
/// It has no name.
pub fn slice(object: &Value) -> Result<Decoded<Slice>, Defect> {
    let name = name(object)?;
    let mut defects = Vec::new();
    let label = &object["metadata"]["labels"][SERVICE_NAME];
    let service = label
        .as_str()
        .filter(|service| !service.is_empty())
        .map(Arc::from);
    let mut slice = Slice {
        name,
        service,
        ports: Vec::new(),
        endpoints: Vec::new(),
    };
    let family = match object["addressType"].as_str() {
        Some("IPv4") => Some(Family::V4),
        Some("IPv6") => Some(Family::V6),
        // FQDN, and what may come: nothing that could be a backend.
        _ => None,
    };
    if let Some(family) = family {
        slice.ports = slice_ports(&object["ports"], &mut defects);
        slice.endpoints = endpoints(family, &object["endpoints"], &mut defects);
    }
    Ok(Decoded {
        object: slice,
        defects,
    })
}

/// Name of a Node.
///
/// # Errors
/// Without a name it can't be told from others.
pub fn node_name(object: &Value) -> Result<ObjectName, Defect> {
    let name = &object["metadata"]["name"];
    let text = name.as_str().filter(|name| !name.is_empty());
    text.map(|name| ObjectName::new("", name))
        .ok_or_else(|| expected("metadata.name", "a name", name))
}

/// A Node.
///
/// # Errors
/// It has no name.
pub fn node(object: &Value) -> Result<Decoded<Node>, Defect> {
    let name = node_name(object)?.name.to_string();
    let mut defects = Vec::new();
    let zone = match &object["metadata"]["labels"][ZONE] {
        Value::Null => None,
        Value::String(zone) => Some(zone.clone()).filter(|zone| !zone.is_empty()),
        found => {
            defects.push(expected(&format!("metadata.labels[{ZONE}]"), "a zone", found));
            None
        }
    };
    let mut addresses = Vec::new();
    for (field, value) in items("status.addresses", &object["status"]["addresses"], &mut defects) {
        // Others are names.
        if matches!(value["type"].as_str(), Some("InternalIP" | "ExternalIP")) {
            let field = format!("{field}.address");
            addresses.extend(address(&field, None, &value["address"], &mut defects));
        }
    }
    Ok(Decoded {
        object: Node {
            name,
            zone,
            addresses,
        },
        defects,
    })
}

/// Whether this agent gives the Service frontends at all.
fn balanced(service: &Value) -> bool {
    let labels = &service["metadata"]["labels"];
    labels.get(SERVICE_PROXY_NAME).is_none() && service["spec"]["type"] != "ExternalName"
}

fn cluster_ips(spec: &Value, defects: &mut Vec<Defect>) -> Vec<IpAddr> {
    let single = || {
        [("spec.clusterIP".to_owned(), &spec["clusterIP"])]
            .into_iter()
            .collect::<Vec<_>>()
    };
    let all = match items("spec.clusterIPs", &spec["clusterIPs"], defects) {
        all if all.is_empty() => single(),
        all => all,
    };
    let mut addresses = BTreeSet::new();
    for (field, value) in all {
        match value.as_str() {
            // Headless, or not allocated yet.
            Some("None" | "") => {}
            None if value.is_null() => {}
            _ => addresses.extend(address(&field, None, value, defects)),
        }
    }
    addresses.into_iter().collect()
}

fn service_ports(ports: &Value, defects: &mut Vec<Defect>) -> Vec<ServicePort> {
    let mut seen = BTreeSet::new();
    let mut read = Vec::new();
    for (field, value) in items("spec.ports", ports, defects) {
        let Some((name, port, protocol)) = port(&field, value, defects) else {
            continue;
        };
        if seen.insert((port, protocol)) {
            let node_port = None;
            read.push(ServicePort {
                name,
                port,
                protocol,
                node_port,
            });
        } else {
            let problem = format!("{protocol} {port} is there already; the first one counts");
            defects.push(Defect {
                reason: Reason::PortRepeated,
                field,
                problem,
            });
        }
    }
    read
}

fn slice_ports(ports: &Value, defects: &mut Vec<Defect>) -> Vec<SlicePort> {
    let ports = items("ports", ports, defects);
    let read = ports
        .into_iter()
        .filter_map(|(field, value)| port(&field, value, defects));
    read.map(|(name, port, protocol)| SlicePort { name, port, protocol })
        .collect()
}

fn port(field: &str, value: &Value, defects: &mut Vec<Defect>) -> Option<(Arc<str>, u16, Protocol)> {
    let protocol = match &value["protocol"] {
        Value::Null => Protocol::Tcp,
        found => match found.as_str() {
            Some("TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => {
                defects.push(expected(&format!("{field}.protocol"), "TCP, UDP or SCTP", found));
                return None;
            }
        },
    };
    let name = match &value["name"] {
        Value::Null => "",
        found => match found.as_str() {
            Some(name) => name,
            None => {
                defects.push(expected(&format!("{field}.name"), "a name", found));
                return None;
            }
        },
    };
    let number = value["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .filter(|&port| port > 0);
    let Some(number) = number else {
        defects.push(expected(
            &format!("{field}.port"),
            "a number from 1 to 65535",
            &value["port"],
        ));
        return None;
    };
    Some((name.into(), number, protocol))
}

fn endpoints(family: Family, endpoints: &Value, defects: &mut Vec<Defect>) -> Vec<Endpoint> {
    let mut read = Vec::new();
    for (field, value) in items("endpoints", endpoints, defects) {
        let ready = match &value["conditions"]["ready"] {
            // "A nil value should be interpreted as true", discovery.k8s.io/v1 EndpointConditions.
            Value::Null => true,
            Value::Bool(ready) => *ready,
            found => {
                defects.push(expected(
                    &format!("{field}.conditions.ready"),
                    "true or false",
                    found,
                ));
                continue;
            }
        };
        let node = match &value["nodeName"] {
            Value::Null => None,
            Value::String(node) => Some(node.as_str()).filter(|node| !node.is_empty()).map(Arc::from),
            found => {
                // Its address is as good as ever; traffic to it only looks as if it came from this node.
                defects.push(expected(&format!("{field}.nodeName"), "a name", found));
                None
            }
        };
        // "No semantics are defined for additional addresses beyond the first."
        let field = format!("{field}.addresses[0]");
        let address = address(&field, Some(family), &value["addresses"][0], defects);
        read.extend(address.map(|address| Endpoint {
            ready,
            serving: ready,
            node,
            ..Endpoint::new(address)
        }));
    }
    read
}

/// An address of a family, or of any. An IPv4-mapped IPv6 address is neither: it would be another one in the maps.
fn address(field: &str, family: Option<Family>, value: &Value, defects: &mut Vec<Defect>) -> Option<IpAddr> {
    let address = value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let address = address.filter(|address| {
        let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        !mapped && family.is_none_or(|family| Family::of(*address) == family)
    });
    if address.is_none() {
        let what = match family {
            Some(family) => format!("an {family} address"),
            None => "an IP address".to_owned(),
        };
        defects.push(expected(field, &what, value));
    }
    address
}

/// The items of a list that may be absent or `null`, each with the path of its field.
fn items<'a>(field: &str, list: &'a Value, defects: &mut Vec<Defect>) -> Vec<(String, &'a Value)> {
    match list {
        Value::Null => Vec::new(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (format!("{field}[{index}]"), item))
                .collect()
        }
        found => {
            defects.push(expected(field, "a list", found));
            Vec::new()
        }
    }
}

fn expected(field: &str, what: &str, found: &Value) -> Defect {
    /// Enough to recognise the value by, in a log line.
    const SHOWN: usize = 80;
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(SHOWN) {
        found.truncate(end);
        found.push('…');
    }
    Defect {
        reason: Reason::Malformed,
        field: field.to_owned(),
        problem: format!("expected {what}, found {found}; left out"),
    }
}
