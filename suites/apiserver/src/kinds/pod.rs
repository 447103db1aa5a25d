//! Pod: defaults (`pkg/apis/core/v1/defaults.go`) and its first status.

use serde_json::{Map, Value, json};

/// Containers of all three lists.
pub(super) const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

pub(super) fn prepare_create(pod: &mut Value) {
    defaults(pod);
    tolerate_bad_nodes(&mut pod["spec"]);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos_class(&pod["spec"])});
}

pub(super) fn prepare_update(pod: &mut Value, old: &Value) {
    defaults(pod);
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    // Set at creation, and kept if a status has none (`podStatusStrategy.PrepareForUpdate`).
    if let Some(decided) = old["status"].get("qosClass")
        && pod["status"]["qosClass"].as_str().is_none_or(str::is_empty)
    {
        pod["status"]["qosClass"] = decided.clone();
    }
    complete_status(&mut pod["status"]);
}

fn default(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let slot = map.entry(field).or_insert(Value::Null);
    if slot.is_null() || *slot == "" {
        *slot = value.into();
    }
}

/// The defaults of the type alone: without what admission adds.
pub(super) fn defaulted(pod: &mut Value) {
    let before = pod["spec"].clone();
    defaults(pod);
    if let Some(spec) = pod["spec"].as_object_mut() {
        for field in ["priority", "preemptionPolicy"] {
            if before[field].is_null() {
                spec.remove(field);
            }
        }
    }
    if pod["status"].is_object() {
        complete_status(&mut pod["status"]);
    }
}

fn defaults(pod: &mut Value) {
    if !pod["spec"].is_object() {
        pod["spec"] = json!({});
    }
    let Some(spec) = pod["spec"].as_object_mut() else {
        return;
    };
    default(spec, "restartPolicy", "Always");
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "enableServiceLinks", true);
    default(spec, "securityContext", json!({}));
    // What upstream's admission adds: the one priority there is, and five minutes on a node that went bad.
    default(spec, "priority", 0);
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    for flag in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec.get(flag) == Some(&Value::Bool(false)) {
            spec.remove(flag);
        }
    }
    if spec.get("nodeName").is_some_and(|name| *name == "") {
        spec.remove("nodeName");
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in CONTAINER_LISTS {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(container) = container.as_object_mut() {
                container_defaults(container, host_network);
            }
        }
    }
}

/// Tolerations that let a pod stay for a while on a node that is not ready (DefaultTolerationSeconds).
fn tolerate_bad_nodes(spec: &mut Value) {
    let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = all.iter().any(|toleration| {
            (toleration["key"] == key || toleration["key"].is_null())
                && (toleration["effect"] == "NoExecute" || toleration["effect"].is_null())
        });
        if !tolerated {
            all.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    if !all.is_empty() {
        spec["tolerations"] = all.into();
    }
}

/// Adds times and states that upstream always shows.
fn complete_status(status: &mut Value) {
    let Some(status) = status.as_object_mut() else {
        return;
    };
    let mut complete = |field: &str, missing: &[(&str, Value)]| {
        let list = status.get_mut(field).and_then(Value::as_array_mut);
        for entry in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            for (name, value) in missing {
                entry.entry(*name).or_insert_with(|| value.clone());
            }
        }
    };
    complete(
        "conditions",
        &[
            ("lastProbeTime", Value::Null),
            ("lastTransitionTime", Value::Null),
        ],
    );
    complete(
        "containerStatuses",
        &[("state", json!({})), ("lastState", json!({}))],
    );
    complete(
        "initContainerStatuses",
        &[("state", json!({})), ("lastState", json!({}))],
    );
}

fn container_defaults(container: &mut Map<String, Value>, host_network: bool) {
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    default(container, "resources", json!({}));
    if let Some(resources) = container.get_mut("resources")
        && let Some(limits) = resources["limits"].as_object().cloned()
    {
        // Requests default to limits.
        for (name, limit) in limits {
            if resources["requests"][&name].is_null() {
                resources["requests"][&name] = limit;
            }
        }
    }
    for variable in container
        .get_mut("env")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(variable) = variable.as_object_mut()
            && variable.get("value").is_some_and(|value| *value == "")
        {
            variable.remove("value");
        }
    }
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    };
    default(container, "imagePullPolicy", policy);
    for port in container
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(port) = port.as_object_mut() else {
            continue;
        };
        default(port, "protocol", "TCP");
        if host_network && !port.contains_key("hostPort") {
            let number = port.get("containerPort").cloned().unwrap_or_default();
            port.insert("hostPort".into(), number);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(name).and_then(Value::as_object_mut) else {
            continue;
        };
        default(probe, "timeoutSeconds", 1);
        default(probe, "periodSeconds", 10);
        default(probe, "successThreshold", 1);
        default(probe, "failureThreshold", 3);
        if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
            default(get, "path", "/");
            default(get, "scheme", "HTTP");
        }
    }
}

/// No tag, or `:latest`, and no digest.
fn is_latest(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or_default();
    !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"))
}

/// Guaranteed: cpu and memory limited in every container, and requests (if any) equal to the limits.
fn qos_class(spec: &Value) -> &'static str {
    let containers = || {
        ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| spec[list].as_array().into_iter().flatten())
    };
    let has = |container: &Value, which: &str, what: &str| !container["resources"][which][what].is_null();
    let any = |container: &Value| {
        ["limits", "requests"]
            .iter()
            .any(|which| ["cpu", "memory"].iter().any(|what| has(container, which, what)))
    };
    if !containers().any(any) {
        return "BestEffort";
    }
    let guaranteed = |container: &Value| {
        ["cpu", "memory"].iter().all(|what| {
            let requests = &container["resources"]["requests"][what];
            has(container, "limits", what)
                && (requests.is_null() || *requests == container["resources"]["limits"][what])
        })
    };
    if containers().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
