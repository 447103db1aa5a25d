//! ConfigMaps, Secrets, ServiceAccounts, Leases.

use serde_json::Value;

use super::{name_and_age, text};

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
