//! Namespaces, nodes, events, ServiceCIDRs.

use serde_json::Value;

use super::{NONE, age, name_and_age, or, text};

const UNKNOWN: &str = "<unknown>";

pub(super) fn namespace_cells(namespace: &Value) -> Vec<String> {
    let (name, age) = name_and_age(namespace);
    vec![name, text(&namespace["status"]["phase"]), age]
}

pub(super) fn node_cells(node: &Value) -> Vec<String> {
    let (name, age) = name_and_age(node);
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| text(&condition["status"])).as_deref() {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<String> = Vec::new();
    for (label, value) in node["metadata"]["labels"].as_object().into_iter().flatten() {
        match label.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.push(role.to_owned()),
            _ if label == "kubernetes.io/role" && *value != "" => roles.push(text(value)),
            _ => {}
        }
    }
    roles.sort();
    roles.dedup();
    let address = |wanted: &str| {
        let all = node["status"]["addresses"].as_array().into_iter().flatten();
        let mut found = all.filter(|address| address["type"] == wanted);
        or(
            &found
                .next()
                .map(|address| text(&address["address"]))
                .unwrap_or_default(),
            NONE,
        )
    };
    let info = |field: &str| or(&text(&node["status"]["nodeInfo"][field]), UNKNOWN);
    vec![
        name,
        status,
        or(&roles.join(","), NONE),
        age,
        text(&node["status"]["nodeInfo"]["kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

pub(super) fn service_cidr_cells(object: &Value) -> Vec<String> {
    let (name, age) = name_and_age(object);
    let cidrs = object["spec"]["cidrs"].as_array().into_iter().flatten();
    vec![name, cidrs.map(text).collect::<Vec<_>>().join(","), age]
}

pub(super) fn event_cells(event: &Value) -> Vec<String> {
    let about = &event["involvedObject"];
    let object = format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]));
    let first = if event["firstTimestamp"].is_null() {
        &event["eventTime"]
    } else {
        &event["firstTimestamp"]
    };
    let last = if event["lastTimestamp"].is_null() {
        first
    } else {
        &event["lastTimestamp"]
    };
    let reporter = if event["source"]["component"].is_null() {
        &event["reportingComponent"]
    } else {
        &event["source"]["component"]
    };
    let host = text(&event["source"]["host"]);
    let source = if host.is_empty() {
        text(reporter)
    } else {
        format!("{}, {host}", text(reporter))
    };
    vec![
        age::since(last),
        text(&event["type"]),
        text(&event["reason"]),
        object,
        text(&about["fieldPath"]),
        source,
        text(&event["message"]).trim().to_owned(),
        age::since(first),
        event["count"]
            .as_i64()
            .filter(|count| *count > 0)
            .unwrap_or(1)
            .to_string(),
        text(&event["metadata"]["name"]),
    ]
}
