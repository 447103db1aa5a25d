//! Namespace, Node, Event and ServiceCIDR.

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::status::FieldError;

/// The label by which selectors know a namespace.
pub(super) fn label_namespace(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
}

pub(super) fn prepare_namespace(namespace: &mut Value) {
    label_namespace(namespace);
    namespace["spec"] = json!({"finalizers": ["kubernetes"]});
    namespace["status"] = json!({"phase": "Active"});
}

pub(super) fn prepare_namespace_update(new: &mut Value, old: &Value) {
    let name = old["metadata"]["name"].clone();
    new["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    new["spec"] = old["spec"].clone();
    // The phase follows the deletion, whatever a client writes.
    let phase = if old["metadata"]["deletionTimestamp"].is_null() {
        "Active"
    } else {
        "Terminating"
    };
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    new["status"]["phase"] = phase.into();
}

pub(super) fn prepare_node(node: &mut Value) {
    for part in ["spec", "status"] {
        if !node[part].is_object() {
            node[part] = json!({});
        }
    }
    if let Some(spec) = node["spec"].as_object_mut() {
        if spec.get("unschedulable") == Some(&Value::Bool(false)) {
            spec.remove("unschedulable");
        }
        // `podCIDR` is the first of `podCIDRs`.
        match (spec.get("podCIDR").cloned(), spec.get("podCIDRs").cloned()) {
            (Some(one), None) => drop(spec.insert("podCIDRs".into(), json!([one]))),
            (None, Some(all)) => drop(spec.insert("podCIDR".into(), all[0].clone())),
            _ => {}
        }
    }
    let status = &mut node["status"];
    if status["allocatable"].is_null() && !status["capacity"].is_null() {
        status["allocatable"] = status["capacity"].clone();
    }
    if let Some(map) = status.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.entry("daemonEndpoints")
            .or_insert_with(|| json!({"kubeletEndpoint": {"Port": 0}}));
        let info = map.entry("nodeInfo").or_insert_with(|| json!({}));
        for field in NODE_INFO {
            if info[field].is_null() {
                info[field] = "".into();
            }
        }
        let conditions = map.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            condition.entry("lastHeartbeatTime").or_insert(Value::Null);
            condition.entry("lastTransitionTime").or_insert(Value::Null);
        }
    }
}

/// The status is the controller's, which this server does not have.
pub(super) fn prepare_service_cidr(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
}

/// Upstream shows these in every event, set or not.
pub(super) fn prepare_event(event: &mut Value) {
    if let Some(map) = event.as_object_mut() {
        for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
            map.entry(field).or_insert(Value::Null);
        }
        map.entry("source").or_insert_with(|| json!({}));
        for field in ["reportingComponent", "reportingInstance"] {
            map.entry(field).or_insert_with(|| "".into());
        }
    }
}

/// Upstream shows all of these, set or not.
const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

pub(super) fn check_node(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let cidrs = new["spec"]["podCIDRs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, cidr) in cidrs.iter().enumerate() {
        if cidr.as_str().is_none_or(|text| text.parse::<IpNet>().is_err()) {
            let at = format!("spec.podCIDRs[{index}]");
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(at, cidr, why));
        }
    }
    if let Some(old) = old {
        let before = &old["spec"]["podCIDRs"];
        if !before.is_null() && *before != new["spec"]["podCIDRs"] {
            let why = "node updates may not change podCIDR except from \"\" to valid";
            errors.push(FieldError::forbidden("spec.podCIDRs", why));
        }
    }
}

/// One range, or one of each family; a second one may come later.
pub(super) fn check_service_cidr(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let cidrs = |object: &Value| object["spec"]["cidrs"].as_array().cloned().unwrap_or_default();
    let all = cidrs(new);
    let mut families = Vec::new();
    for (index, cidr) in all.iter().enumerate() {
        match cidr.as_str().and_then(|text| text.parse::<IpNet>().ok()) {
            Some(net) => families.push(net.addr().is_ipv4()),
            None => {
                let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                errors.push(FieldError::invalid(format!("spec.cidrs[{index}]"), cidr, why));
            }
        }
    }
    if all.is_empty() {
        errors.push(FieldError::required("spec.cidrs", "at least one CIDR required"));
    } else if all.len() > 2 || families == [true, true] || families == [false, false] {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(FieldError::invalid("spec.cidrs", &new["spec"]["cidrs"], why));
    }
    if old.is_some_and(|old| !all.starts_with(&cidrs(old))) {
        let found = &new["spec"]["cidrs"];
        errors.push(FieldError::invalid("spec.cidrs", found, "field is immutable"));
    }
}

pub(super) fn check_event(event: &Value, errors: &mut Vec<FieldError>) {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let about = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    // Events about cluster-scoped objects live in `default`.
    let fine = if about.is_empty() {
        namespace == "default"
    } else {
        namespace == about
    };
    if !fine {
        let found = &event["involvedObject"]["namespace"];
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            found,
            "does not match event.namespace",
        ));
    }
}
