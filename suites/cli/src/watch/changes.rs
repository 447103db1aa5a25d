//! Differences between two states of an object, as text.
//!
//! Objects are compared as they were sent: a typed client fills in defaults, and `endpoints: null` is not `endpoints:
//! []`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields that change with every write and mean nothing by themselves.
const NOISE: [&str; 3] = ["resourceVersion", "managedFields", "generation"];
/// Lists of a Service or an EndpointSlice whose entries have identities: the name of an entry, and its identifying
/// fields.
const LISTS: [(&str, &str, &[&str]); 4] = [
    ("endpoints", "endpoint", &["addresses", "targetRef"]),
    ("ports", "port", &["name", "protocol"]),
    ("spec.ports", "port", &["name", "protocol"]),
    ("status.loadBalancer.ingress", "ingress", &["ip", "hostname"]),
];

/// The differences, one a line; empty if only fields of every write differ.
///
/// `None` is an object that does not exist.
pub(super) fn changes(old: Option<&Value>, new: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    match (old, new) {
        (Some(old), Some(new)) => {
            if uid(old) != uid(new) {
                found.push("is another object of the same name".to_owned());
            }
            compare("", old, new, &mut found);
        }
        (None, Some(new)) => {
            found.push("is there".to_owned());
            compare("", &Value::Null, new, &mut found);
        }
        (Some(_), None) => found.push("is deleted".to_owned()),
        (None, None) => {}
    }
    found
}

fn uid(object: &Value) -> &Value {
    &object["metadata"]["uid"]
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    if old == new {
        return;
    }
    if let Some((path, what, keys)) = LISTS.iter().find(|(list, ..)| *list == path) {
        list(path, what, old, new, keys, found);
        return;
    }
    let empty = Map::new();
    let fields = |value: &Value| value.as_object().cloned();
    match (fields(old), fields(new)) {
        (Some(_), Some(_)) | (None, Some(_)) if old.is_object() || old.is_null() => {
            let (old, new) = (
                old.as_object().unwrap_or(&empty),
                new.as_object().unwrap_or(&empty),
            );
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                if is_noise(path, name) {
                    continue;
                }
                let below = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                let of = |map: &Map<String, Value>| map.get(name).cloned().unwrap_or(Value::Null);
                compare(&below, &of(old), &of(new), found);
                // `null` is different from a missing list.
                if LISTS.iter().any(|(list, ..)| *list == below)
                    && new.get(name) == Some(&Value::Null)
                    && old.get(name) != Some(&Value::Null)
                {
                    found.push(format!("{below} is null"));
                }
            }
        }
        _ if old.is_null() => found.push(format!("{path} is {}", short(new))),
        _ if new.is_null() => found.push(format!("{path} is gone, was {}", short(old))),
        _ => found.push(format!("{path} is {}, was {}", short(new), short(old))),
    }
}

/// Fields that do not affect clients of the Service: those of every write, and those of every object.
fn is_noise(path: &str, name: &str) -> bool {
    let metadata = path == "metadata"
        && (NOISE.contains(&name)
            || ["uid", "name", "namespace", "creationTimestamp", "generateName"].contains(&name));
    metadata || (path.is_empty() && ["kind", "apiVersion"].contains(&name))
}

/// Entries that were added, removed or changed.
fn list(path: &str, what: &str, old: &Value, new: &Value, keys: &[&str], found: &mut Vec<String>) {
    let (before, after) = (keyed(old, keys), keyed(new, keys));
    for (key, entry) in &before {
        if !after.contains_key(key) {
            found.push(format!("{what} {} is gone", name(entry)));
        }
    }
    for (key, entry) in &after {
        match before.get(key) {
            None => found.push(format!("{what} {} is there{}", name(entry), state(entry))),
            Some(was) if was == entry => {}
            Some(was) => {
                let mut inside = Vec::new();
                compare("", was, entry, &mut inside);
                found.push(format!("{what} {}: {}", name(entry), inside.join(", ")));
            }
        }
    }
    if before.keys().eq(after.keys()) && before == after {
        found.push(format!("{path} is in another order"));
    }
}

/// Entries by their identifying fields; later ones with the same identity get a number.
fn keyed<'a>(list: &'a Value, keys: &[&str]) -> BTreeMap<(String, usize), &'a Value> {
    let mut all = BTreeMap::new();
    for entry in list.as_array().into_iter().flatten() {
        let key = keys
            .iter()
            .map(|key| entry[*key].to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let number = (0..).find(|number| !all.contains_key(&(key.clone(), *number)));
        all.insert((key, number.unwrap_or_default()), entry);
    }
    all
}

/// A readable name of an entry: an endpoint by its address and pod, a port by name and number.
fn name(entry: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(addresses) = entry["addresses"].as_array() {
        let addresses: Vec<String> = addresses.iter().filter_map(text).collect();
        let of = text(&entry["targetRef"]["name"]).map(|pod| format!(" ({pod})"));
        return format!("{}{}", addresses.join(","), of.unwrap_or_default());
    }
    if entry["port"].is_number() || entry["protocol"].is_string() {
        let name = text(&entry["name"]).filter(|name| !name.is_empty());
        let protocol = text(&entry["protocol"]).unwrap_or_else(|| "TCP".to_owned());
        let name = name.map(|name| format!("{name} ")).unwrap_or_default();
        return format!("{name}{}/{protocol}", short(&entry["port"]));
    }
    text(&entry["ip"])
        .or_else(|| text(&entry["hostname"]))
        .unwrap_or_else(|| short(entry))
}

/// The fields that decide whether an endpoint gets traffic, and its location.
fn state(entry: &Value) -> String {
    if !entry["addresses"].is_array() {
        return match &entry["targetPort"] {
            Value::Null => String::new(),
            port => format!(", to {}", short(port)),
        };
    }
    let mut words: Vec<String> = ["ready", "serving", "terminating"]
        .into_iter()
        .filter_map(|condition| match &entry["conditions"][condition] {
            Value::Bool(true) => Some(condition.to_owned()),
            Value::Bool(false) if condition != "terminating" => Some(format!("not {condition}")),
            _ => None,
        })
        .collect();
    words.extend(entry["nodeName"].as_str().map(|node| format!("on {node}")));
    words.extend(entry["zone"].as_str().map(|zone| format!("in {zone}")));
    if words.is_empty() {
        String::new()
    } else {
        format!(", {}", words.join(", "))
    }
}

/// A value on one line.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(endpoints: &Value, ports: &Value) -> Value {
        json!({
            "kind": "EndpointSlice",
            "metadata": {"name": "t-1", "uid": "u", "resourceVersion": endpoints.to_string()},
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        })
    }

    fn endpoint(address: &str, ready: bool) -> Value {
        json!({"addresses": [address], "conditions": {"ready": ready}, "nodeName": "node1",
               "targetRef": {"kind": "Pod", "name": format!("pod-{address}"), "uid": address}})
    }

    fn between(old: &Value, new: &Value) -> Vec<String> {
        changes(Some(old), Some(new))
    }

    #[test]
    fn endpoints_come_go_and_change() {
        let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
        let two = slice(
            &json!([endpoint("10.0.0.1", true), endpoint("10.0.0.2", true)]),
            &ports,
        );
        let other = slice(
            &json!([endpoint("10.0.0.2", false), endpoint("10.0.0.3", true)]),
            &ports,
        );
        assert_eq!(
            between(&two, &other),
            [
                "endpoint 10.0.0.1 (pod-10.0.0.1) is gone",
                "endpoint 10.0.0.2 (pod-10.0.0.2): conditions.ready is false, was true",
                "endpoint 10.0.0.3 (pod-10.0.0.3) is there, ready, on node1",
            ]
        );
        let turned = slice(
            &json!([endpoint("10.0.0.2", true), endpoint("10.0.0.1", true)]),
            &ports,
        );
        assert_eq!(between(&two, &turned), ["endpoints is in another order"]);
        let twins = slice(
            &json!([endpoint("10.0.0.1", true), endpoint("10.0.0.1", true)]),
            &ports,
        );
        let one = slice(&json!([endpoint("10.0.0.1", true)]), &ports);
        assert_eq!(
            between(&twins, &one),
            ["endpoint 10.0.0.1 (pod-10.0.0.1) is gone"]
        );
    }

    #[test]
    fn null_is_not_empty() {
        let full = slice(
            &json!([endpoint("10.0.0.1", true)]),
            &json!([{"name": "", "port": 6443, "protocol": "TCP"}]),
        );
        let gone = "endpoint 10.0.0.1 (pod-10.0.0.1) is gone";
        let emptied = slice(
            &json!([]),
            &json!([{"name": "", "port": 6443, "protocol": "TCP"}]),
        );
        assert_eq!(between(&full, &emptied), [gone]);
        assert_eq!(
            between(&full, &slice(&Value::Null, &Value::Null)),
            [
                gone,
                "endpoints is null",
                "port 6443/TCP is gone",
                "ports is null"
            ]
        );
    }

    #[test]
    fn ports_annotations_and_addresses_of_a_service() {
        let service = |port: u16, note: &str, extra: &Value| {
            let mut object = json!({
                "metadata": {"name": "t", "uid": "u", "annotations": {"note": note}, "managedFields": [note]},
                "spec": {"type": "ClusterIP", "ports": [{"name": "http", "port": port, "protocol": "TCP", "targetPort": 8080}]},
                "status": {"loadBalancer": {}},
            });
            object["status"]["loadBalancer"] = extra.clone();
            object
        };
        let old = service(80, "a", &json!({}));
        let new = service(81, "b", &json!({"ingress": [{"ip": "192.0.2.1"}]}));
        assert_eq!(
            between(&old, &new),
            [
                "metadata.annotations.note is b, was a",
                "port http 81/TCP: port is 81, was 80",
                "ingress 192.0.2.1 is there",
            ]
        );
        assert_eq!(between(&old, &old), [""; 0]);
        let mut written = old.clone();
        written["metadata"]["resourceVersion"] = json!("9");
        assert_eq!(between(&old, &written), [""; 0]);
    }

    #[test]
    fn objects_come_and_go_and_others_take_their_names() {
        let old = slice(&json!([]), &json!([]));
        let mut new = old.clone();
        new["metadata"]["uid"] = json!("v");
        assert_eq!(between(&old, &new), ["is another object of the same name"]);
        assert_eq!(changes(Some(&old), None), ["is deleted"]);
        let port = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
        assert_eq!(
            changes(None, Some(&slice(&json!([endpoint("10.0.0.1", false)]), &port))),
            [
                "is there",
                "addressType is IPv4",
                "endpoint 10.0.0.1 (pod-10.0.0.1) is there, not ready, on node1",
                "port http 8080/TCP is there",
            ]
        );
        assert!(changes(None, None).is_empty());
    }
}
