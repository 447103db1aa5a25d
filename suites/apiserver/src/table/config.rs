//! Endpoints, ConfigMaps, Secrets, ServiceAccounts, Leases.

use serde_json::Value;

use super::{NONE, name_and_age, text};

/// Endpoints that are shown; the others are counted.
const SHOWN: usize = 3;

pub(super) fn endpoints_cells(endpoints: &Value) -> Vec<String> {
    let (name, age) = name_and_age(endpoints);
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for subset in list(&endpoints["subsets"]) {
        let (addresses, ports) = (list(&subset["addresses"]), list(&subset["ports"]));
        if ports.is_empty() {
            all.extend(addresses.iter().map(|address| text(&address["ip"])));
        }
        for port in &ports {
            all.extend(addresses.iter().map(|address| {
                let (ip, port) = (text(&address["ip"]), text(&port["port"]));
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            }));
        }
    }
    let shown = match all.len() {
        0 => NONE.to_owned(),
        count if count > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), count - SHOWN),
        _ => all.join(","),
    };
    vec![name, shown, age]
}

fn count(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

pub(super) fn config_map_cells(map: &Value) -> Vec<String> {
    let (name, age) = name_and_age(map);
    let keys = count(&map["data"]) + count(&map["binaryData"]);
    vec![name, keys.to_string(), age]
}

pub(super) fn secret_cells(secret: &Value) -> Vec<String> {
    let (name, age) = name_and_age(secret);
    vec![
        name,
        text(&secret["type"]),
        count(&secret["data"]).to_string(),
        age,
    ]
}

pub(super) fn service_account_cells(account: &Value) -> Vec<String> {
    let (name, age) = name_and_age(account);
    vec![name, age]
}

pub(super) fn lease_cells(lease: &Value) -> Vec<String> {
    let (name, age) = name_and_age(lease);
    vec![name, text(&lease["spec"]["holderIdentity"]), age]
}
