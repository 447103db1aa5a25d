//! EndpointSlices.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    Decoded, Defect, SERVICE_NAME, name,
    parts::{address, expected, items, port},
};
use crate::{
    endpoint_address::Family,
    findings::Reason,
    model::{Endpoint, Slice, SlicePort},
    names::NameSet,
};

/// An EndpointSlice.
///
/// # Errors
/// It has no name.
pub fn slice(object: &Value) -> Result<Decoded<Slice>, Defect> {
    let mut defects = Vec::new();
    let mut slice = Slice {
        name: name(object)?,
        service: service(object, &mut defects),
        ports: Vec::new(),
        endpoints: Vec::new(),
    };
    let family = match &object["addressType"] {
        kind if kind == "IPv4" => Some(Family::V4),
        kind if kind == "IPv6" => Some(Family::V6),
        // Nothing that could be a backend.
        kind if kind == "FQDN" => None,
        found => {
            defects.push(expected("addressType", "IPv4, IPv6 or FQDN", found));
            None
        }
    };
    if let Some(family) = family {
        slice.ports = ports(&object["ports"], &mut defects);
        slice.endpoints = endpoints(family, &object["endpoints"], &mut defects);
    }
    Ok(Decoded {
        object: slice,
        defects,
    })
}

fn service(object: &Value, defects: &mut Vec<Defect>) -> Option<Arc<str>> {
    let label = &object["metadata"]["labels"][SERVICE_NAME];
    let service = label.as_str().filter(|service| !service.is_empty());
    if service.is_none() {
        let field = format!("metadata.labels[{SERVICE_NAME}]");
        let defect = expected(&field, "the name of a Service", label);
        let reason = Reason::ServiceUnknown;
        defects.push(Defect { reason, ..defect });
    }
    service.map(Arc::from)
}

fn ports(ports: &Value, defects: &mut Vec<Defect>) -> Vec<SlicePort> {
    let mut seen = BTreeSet::new();
    let mut read = Vec::new();
    for (field, value) in items("ports", ports, defects) {
        // "If this is not specified, ports are not restricted": nothing that a Service's port could lead to.
        if value.is_object() && value["port"].is_null() {
            continue;
        }
        let Some((name, port, protocol)) = port(&field, value, defects) else {
            continue;
        };
        if !seen.insert((Arc::clone(&name), protocol)) {
            defects.push(Defect {
                reason: Reason::PortRepeated,
                field,
                problem: format!("{protocol} port \"{name}\" is there already; the first one counts"),
            });
            continue;
        }
        read.push(SlicePort { name, port, protocol });
    }
    read
}

fn endpoints(family: Family, endpoints: &Value, defects: &mut Vec<Defect>) -> Vec<Endpoint> {
    let all = items("endpoints", endpoints, defects);
    all.into_iter()
        .filter_map(|(field, value)| endpoint(family, &field, value, defects))
        .collect()
}

fn endpoint(family: Family, field: &str, value: &Value, defects: &mut Vec<Defect>) -> Option<Endpoint> {
    let conditions = &value["conditions"];
    if !matches!(conditions, Value::Null | Value::Object(_)) {
        defects.push(expected(&format!("{field}.conditions"), "conditions", conditions));
        return None;
    }
    let condition = |name: &str, otherwise: bool, defects: &mut Vec<Defect>| match &conditions[name] {
        Value::Null => Some(otherwise),
        Value::Bool(holds) => Some(*holds),
        found => {
            let field = format!("{field}.conditions.{name}");
            defects.push(expected(&field, "true or false", found));
            None
        }
    };
    // "A nil value should be interpreted as "true"", of ready and serving; of terminating: as "false"
    // (discovery.k8s.io/v1, EndpointConditions).
    let ready = condition("ready", true, defects)?;
    let serving = condition("serving", true, defects)?;
    let terminating = condition("terminating", false, defects)?;
    let node = match &value["nodeName"] {
        Value::Null => None,
        Value::String(node) => Some(node.as_str()).filter(|node| !node.is_empty()),
        found => {
            // The address is used all the same, as one of another node.
            defects.push(expected(&format!("{field}.nodeName"), "a name", found));
            None
        }
    };
    // "No semantics are defined for additional addresses beyond the first."
    let first = &value["addresses"][0];
    let address = address(
        &format!("{field}.addresses[0]"),
        Some(family),
        Reason::EndpointRefused,
        first,
        defects,
    )?;
    Some(Endpoint {
        address,
        ready,
        serving,
        terminating,
        node: node.map(Arc::from),
        for_nodes: hints(field, value, "forNodes", defects),
        for_zones: hints(field, value, "forZones", defects),
    })
}

/// The names in a list of hints. Unreadable hints are ignored: then all endpoints get all traffic.
fn hints(field: &str, endpoint: &Value, list: &str, defects: &mut Vec<Defect>) -> NameSet {
    let hints = &endpoint["hints"];
    let field = format!("{field}.hints");
    if !matches!(hints, Value::Null | Value::Object(_)) {
        // One defect for the two lists.
        if list == "forZones" {
            defects.push(expected(&field, "hints", hints));
        }
        return NameSet::default();
    }
    let mut names = Vec::new();
    for (field, value) in items(&format!("{field}.{list}"), &hints[list], defects) {
        match value["name"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => names.push(name),
            None => defects.push(expected(&format!("{field}.name"), "a name", &value["name"])),
        }
    }
    names.into_iter().collect()
}
