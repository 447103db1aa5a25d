//! EndpointSlice: defaults and what is refused (`pkg/apis/discovery/{v1/defaults,validation}`).

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::{
    names,
    service_check::{PROTOCOLS, special_range},
};
use crate::status::FieldError;

/// Endpoints in one slice.
const MOST_ENDPOINTS: usize = 1000;
/// Addresses of one endpoint.
const MOST_ADDRESSES: usize = 100;
/// Ports of one slice.
const MOST_PORTS: usize = 20000;

/// Fills in defaults, and the two lists: an empty one reads back as `null`, because upstream's storage does not
/// distinguish them, and its JSON contains them.
pub(super) fn normalize(slice: &mut Value) {
    let Some(map) = slice.as_object_mut() else { return };
    for field in ["endpoints", "ports"] {
        let list = map.entry(field).or_insert(Value::Null);
        if list.as_array().is_some_and(Vec::is_empty) {
            *list = Value::Null;
        }
    }
    for port in map["ports"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        port.entry("name").or_insert_with(|| "".into());
        port.entry("protocol").or_insert_with(|| "TCP".into());
    }
    for endpoint in map["endpoints"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        endpoint.entry("addresses").or_insert(Value::Null);
        endpoint.entry("conditions").or_insert_with(|| json!({}));
    }
}

pub(super) fn check(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let kind = &new["addressType"];
    let supported = ["FQDN", "IPv4", "IPv6"];
    if kind.as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required("addressType", ""));
    } else if !supported.iter().any(|one| kind == one) {
        errors.push(FieldError::unsupported("addressType", kind, &supported));
    }
    let endpoints = new["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ports = new["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    check_ports(ports, errors);
    if endpoints.len() > MOST_ENDPOINTS {
        errors.push(FieldError::too_many("endpoints", endpoints.len(), MOST_ENDPOINTS));
    } else {
        for (index, endpoint) in endpoints.iter().enumerate() {
            check_endpoint(index, endpoint, kind, errors);
        }
    }
    if let Some(old) = old
        && old["addressType"] != *kind
    {
        errors.push(FieldError::invalid("addressType", kind, "field is immutable"));
    }
}

fn check_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    if ports.len() > MOST_PORTS {
        return errors.push(FieldError::too_many("ports", ports.len(), MOST_PORTS));
    }
    for (index, port) in ports.iter().enumerate() {
        let at = |field: &str| format!("ports[{index}].{field}");
        let name = port["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            let wrong = names::dns_label(name);
            errors.extend(
                wrong
                    .iter()
                    .map(|why| FieldError::invalid(at("name"), &port["name"], why)),
            );
        }
        if ports[..index].iter().any(|other| other["name"] == port["name"]) {
            errors.push(FieldError::duplicate(at("name"), &port["name"]));
        }
        if !PROTOCOLS.iter().any(|protocol| port["protocol"] == *protocol) {
            errors.push(FieldError::unsupported(
                at("protocol"),
                &port["protocol"],
                &PROTOCOLS,
            ));
        }
        if let Some(profile) = port["appProtocol"].as_str() {
            let wrong = names::qualified_name(profile);
            errors.extend(
                wrong
                    .iter()
                    .map(|why| FieldError::invalid(at("appProtocol"), &port["appProtocol"], why)),
            );
        }
    }
}

fn check_endpoint(index: usize, endpoint: &Value, kind: &Value, errors: &mut Vec<FieldError>) {
    let at = |field: &str| format!("endpoints[{index}].{field}");
    let addresses = endpoint["addresses"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if addresses.is_empty() {
        errors.push(FieldError::required(
            at("addresses"),
            "must contain at least 1 address",
        ));
    } else if addresses.len() > MOST_ADDRESSES {
        errors.push(FieldError::too_many(
            at("addresses"),
            addresses.len(),
            MOST_ADDRESSES,
        ));
    }
    for (number, value) in addresses.iter().enumerate() {
        let text = value.as_str().unwrap_or_default();
        let here = format!("endpoints[{index}].addresses[{number}]");
        match kind.as_str() {
            Some("FQDN") => {
                let wrong = names::dns_subdomain(text);
                errors.extend(
                    wrong
                        .iter()
                        .map(|why| FieldError::invalid(here.as_str(), value, why)),
                );
            }
            Some("IPv4" | "IPv6") => match address(text) {
                Err(why) => errors.push(FieldError::invalid(here, value, why)),
                Ok(found) if found.is_ipv4() != (*kind == "IPv4") => {
                    let article = if *kind == "IPv4" { "an IPv4" } else { "an IPv6" };
                    let why = format!("must be {article} address");
                    errors.push(FieldError::invalid(at("addresses"), value, why));
                }
                Ok(found) => {
                    errors.extend(special_range(found).map(|why| FieldError::invalid(here, value, why)));
                }
            },
            _ => {}
        }
    }
    if let Some(node) = endpoint["nodeName"].as_str() {
        let wrong = names::dns_subdomain(node);
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid(at("nodeName"), &endpoint["nodeName"], why)),
        );
    }
    if let Some(hostname) = endpoint["hostname"].as_str() {
        let wrong = names::dns_label(hostname);
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid(at("hostname"), &endpoint["hostname"], why)),
        );
    }
}

/// An address in its one canonical form.
fn address(text: &str) -> Result<IpAddr, String> {
    let found: IpAddr = text.parse().map_err(|_| {
        if is_ipv4_with_leading_zeros(text) {
            "must not have leading 0s".to_owned()
        } else {
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()
        }
    })?;
    if let IpAddr::V6(v6) = found
        && v6.to_ipv4_mapped().is_some()
    {
        return Err("must not be an IPv4-mapped IPv6 address".into());
    }
    if found.to_string() != text {
        return Err(format!("must be in canonical form (\"{found}\")"));
    }
    Ok(found)
}

fn is_ipv4_with_leading_zeros(text: &str) -> bool {
    let parts: Vec<String> = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" => "0".to_owned(),
            rest => rest.to_owned(),
        })
        .collect();
    text.split('.')
        .any(|part| part.len() > 1 && part.starts_with('0'))
        && parts.join(".").parse::<Ipv4Addr>().is_ok()
}
