//! Services and EndpointSlices.

use serde_json::Value;

use super::{NONE, UNSET, name_and_age, or, text};

/// Addresses of one slice that are shown; the others are counted.
const SHOWN: usize = 3;

pub(super) fn cells(service: &Value) -> Vec<String> {
    let (name, age) = name_and_age(service);
    let spec = &service["spec"];
    let ports: Vec<String> = list(&spec["ports"])
        .map(|port| {
            let (number, protocol) = (text(&port["port"]), text(&port["protocol"]));
            match port["nodePort"].as_u64() {
                Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    let selector: Vec<String> = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    vec![
        name,
        text(&spec["type"]),
        or(&text(&spec["clusterIP"]), NONE),
        external_ip(service),
        or(&ports.join(","), NONE),
        age,
        or(&selector.join(","), NONE),
    ]
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn external_ip(service: &Value) -> String {
    let spec = &service["spec"];
    let declared: Vec<String> = list(&spec["externalIPs"]).map(text).collect();
    match spec["type"].as_str() {
        Some("ExternalName") => text(&spec["externalName"]),
        Some("LoadBalancer") => {
            let ingress = list(&service["status"]["loadBalancer"]["ingress"])
                .map(|ingress| or(&text(&ingress["ip"]), &text(&ingress["hostname"])));
            let all: Vec<String> = ingress.chain(declared).collect();
            or(&all.join(","), "<pending>")
        }
        _ => or(&declared.join(","), NONE),
    }
}

pub(super) fn slice_cells(slice: &Value) -> Vec<String> {
    let (name, age) = name_and_age(slice);
    let ports: Vec<String> = list(&slice["ports"])
        .map(
            |port| match (&port["port"], port["name"].as_str().unwrap_or_default()) {
                (Value::Null, "") => "*".to_owned(),
                (Value::Null, name) => name.to_owned(),
                (number, _) => text(number),
            },
        )
        .collect();
    let addresses: Vec<String> = list(&slice["endpoints"])
        .flat_map(|endpoint| list(&endpoint["addresses"]))
        .map(text)
        .collect();
    vec![
        name,
        text(&slice["addressType"]),
        some(&ports),
        some(&addresses),
        age,
    ]
}

/// The first few, and how many more.
fn some(all: &[String]) -> String {
    match all.len() {
        0 => UNSET.to_owned(),
        count if count > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), count - SHOWN),
        _ => all.join(","),
    }
}
