//! Pod: what is refused, as far as this cluster runs pods (`pkg/apis/core/validation`).

use serde_json::Value;

use super::{
    names,
    pod::CONTAINER_LISTS,
    service_check::{PORT_RANGE, PROTOCOLS, is_port},
};
use crate::status::FieldError;

const IMMUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                         additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
                         set to 1 if it was previously negative)";

pub(super) fn check(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut seen: Vec<&Value> = Vec::new();
    for list in CONTAINER_LISTS {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            check_container(&format!("spec.{list}[{index}]"), container, &mut seen, errors);
        }
    }
    let allowed = ["Always", "OnFailure", "Never"];
    if !allowed.iter().any(|policy| spec["restartPolicy"] == *policy) {
        errors.push(FieldError::unsupported(
            "spec.restartPolicy",
            &spec["restartPolicy"],
            &allowed,
        ));
    }
    if let Some(node) = spec["nodeName"].as_str() {
        let wrong = names::dns_subdomain(node);
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid("spec.nodeName", &spec["nodeName"], why)),
        );
    }
    let Some(old) = old else {
        return;
    };
    if without_mutable(&old["spec"]) != without_mutable(spec) {
        errors.push(FieldError::forbidden("spec", IMMUTABLE));
    }
    // `ValidatePodStatusUpdate`: what the kubelet evicts by is decided once, at creation.
    let qos_class = &new["status"]["qosClass"];
    if *qos_class != old["status"]["qosClass"] {
        errors.push(FieldError::invalid(
            "status.qosClass",
            qos_class,
            "field is immutable",
        ));
    }
}

fn check_container<'a>(
    at: &str,
    container: &'a Value,
    seen: &mut Vec<&'a Value>,
    errors: &mut Vec<FieldError>,
) {
    let name = &container["name"];
    match name.as_str() {
        None | Some("") => errors.push(FieldError::required(format!("{at}.name"), "")),
        Some(text) => {
            let wrong = names::dns_label(text);
            errors.extend(
                wrong
                    .iter()
                    .map(|why| FieldError::invalid(format!("{at}.name"), name, why)),
            );
            if seen.contains(&name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), name));
            }
            seen.push(name);
        }
    }
    if container["image"].as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required(format!("{at}.image"), ""));
    }
    for (index, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
        let number = &port["containerPort"];
        if number.is_null() || *number == 0 {
            errors.push(FieldError::required(
                format!("{at}.ports[{index}].containerPort"),
                "",
            ));
        } else if !is_port(number) {
            errors.push(FieldError::invalid(
                format!("{at}.ports[{index}].containerPort"),
                number,
                PORT_RANGE,
            ));
        }
        if !PROTOCOLS.iter().any(|protocol| port["protocol"] == *protocol) {
            let at = format!("{at}.ports[{index}].protocol");
            errors.push(FieldError::unsupported(at, &port["protocol"], &PROTOCOLS));
        }
    }
}

/// The spec without what an update may change.
fn without_mutable(spec: &Value) -> Value {
    let mut rest = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in rest[list]
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            container.remove("image");
        }
    }
    if let Some(map) = rest.as_object_mut() {
        map.retain(|field, value| {
            !value.is_null()
                && !["activeDeadlineSeconds", "tolerations", "ephemeralContainers"].contains(&field.as_str())
        });
    }
    rest
}
