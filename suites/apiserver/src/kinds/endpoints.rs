//! Endpoints: defaults and what is refused (`ValidateEndpointsCreate` and `ValidateEndpointsUpdate`).

use std::net::IpAddr;

use serde_json::Value;

use super::{
    names,
    service_check::{NOT_AN_IP, PORT_RANGE, PROTOCOLS, is_port, special_range},
};
use crate::status::FieldError;

pub(super) fn normalize(endpoints: &mut Value) {
    for subset in endpoints["subsets"].as_array_mut().into_iter().flatten() {
        let ports = subset.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            port.entry("protocol").or_insert_with(|| "TCP".into());
            if port.get("name").is_some_and(|name| *name == "") {
                port.remove("name");
            }
        }
    }
}

pub(super) fn check(endpoints: &Value, errors: &mut Vec<FieldError>) {
    for (index, subset) in list(&endpoints["subsets"]).enumerate() {
        let at = format!("subsets[{index}]");
        let both = ["addresses", "notReadyAddresses"];
        if both.iter().all(|field| list(&subset[*field]).next().is_none()) {
            let why = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(at.clone(), why));
        }
        for field in both {
            for (index, address) in list(&subset[field]).enumerate() {
                check_address(&format!("{at}.{field}[{index}]"), address, errors);
            }
        }
        let named = list(&subset["ports"]).count() > 1;
        for (index, port) in list(&subset["ports"]).enumerate() {
            check_port(&format!("{at}.ports[{index}]"), port, named, errors);
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn check_address(at: &str, address: &Value, errors: &mut Vec<FieldError>) {
    let ip = &address["ip"];
    let mut invalid = |field: &str, found: &Value, why: &str| {
        errors.push(FieldError::invalid(format!("{at}.{field}"), found, why));
    };
    match ip.as_str().unwrap_or_default().parse::<IpAddr>() {
        Ok(parsed) => {
            if let Some(why) = special_range(parsed) {
                invalid("ip", ip, &why);
            }
        }
        Err(_) => {
            // Upstream parses it twice, and complains each time.
            invalid("ip", ip, NOT_AN_IP);
            invalid("ip", ip, "must be a valid IP address");
        }
    }
    let mut check = |field: &str, rule: fn(&str) -> Vec<String>| {
        if let Some(text) = address[field].as_str().filter(|text| !text.is_empty()) {
            for why in rule(text) {
                invalid(field, &address[field], &why);
            }
        }
    };
    check("hostname", names::dns_label);
    check("nodeName", names::dns_subdomain);
}

fn check_port(at: &str, port: &Value, named: bool, errors: &mut Vec<FieldError>) {
    let at = |field: &str| format!("{at}.{field}");
    match port["name"].as_str() {
        None if named => errors.push(FieldError::required(at("name"), "")),
        None => {}
        Some(name) => {
            for why in names::dns_label(name) {
                errors.push(FieldError::invalid(at("name"), &port["name"], why));
            }
        }
    }
    if !is_port(&port["port"]) {
        errors.push(FieldError::invalid(at("port"), &port["port"], PORT_RANGE));
    }
    if !PROTOCOLS.iter().any(|protocol| port["protocol"] == *protocol) {
        errors.push(FieldError::unsupported(
            at("protocol"),
            &port["protocol"],
            &PROTOCOLS,
        ));
    }
    if let Some(profile) = port["appProtocol"].as_str() {
        for why in names::qualified_name(profile) {
            errors.push(FieldError::invalid(at("appProtocol"), &port["appProtocol"], why));
        }
    }
}
