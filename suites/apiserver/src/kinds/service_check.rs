//! Service: what is refused (`pkg/apis/core/validation/validation.go`, ValidateService).

use std::net::IpAddr;

use serde_json::Value;

use super::{
    names,
    service::{ServiceType, is_headless, ports, service_type, wants_health_port},
};
use crate::status::FieldError;

pub(super) const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

pub(super) fn check(new: &Value, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let kind = service_type(new);
    let mut one_of = |field: &str, allowed: &[&str]| {
        let value = &spec[field];
        if !value.is_null() && !allowed.iter().any(|a| value == a) {
            errors.push(FieldError::unsupported(format!("spec.{field}"), value, allowed));
        }
    };
    one_of("type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    one_of("sessionAffinity", &["ClientIP", "None"]);
    one_of("internalTrafficPolicy", &["Cluster", "Local"]);
    one_of("externalTrafficPolicy", &["Cluster", "Local"]);
    one_of(
        "ipFamilyPolicy",
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    if kind == ServiceType::ExternalName {
        check_external_name(spec, errors);
    } else if ports(new).next().is_none() && !is_headless(new) {
        errors.push(FieldError::required("spec.ports", ""));
    }
    check_ports(new, kind, errors);
    for (key, value) in spec["selector"].as_object().into_iter().flatten() {
        let text = Value::from(key.as_str());
        let wrong = names::qualified_name(key);
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid("spec.selector", &text, why)),
        );
        let wrong = names::label_value(value.as_str().unwrap_or_default());
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid("spec.selector", value, why)),
        );
    }
    check_affinity(spec, errors);
    check_external(new, kind, errors);
    let distribution = &spec["trafficDistribution"];
    let allowed = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if !distribution.is_null() && !allowed.iter().any(|a| distribution == a) {
        errors.push(FieldError::unsupported(
            "spec.trafficDistribution",
            distribution,
            &allowed,
        ));
    }
}

fn check_external_name(spec: &Value, errors: &mut Vec<FieldError>) {
    let name = &spec["externalName"];
    match name.as_str().map(|text| text.strip_suffix('.').unwrap_or(text)) {
        None | Some("") => errors.push(FieldError::required("spec.externalName", "")),
        Some(text) => {
            let wrong = names::dns_subdomain(text);
            errors.extend(
                wrong
                    .iter()
                    .map(|why| FieldError::invalid("spec.externalName", name, why)),
            );
        }
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec[field].is_null() {
            let why = "may not be set for ExternalName services";
            errors.push(FieldError::forbidden(format!("spec.{field}"), why));
        }
    }
}

/// 1 to 65535.
pub(super) fn is_port(value: &Value) -> bool {
    value.as_i64().is_some_and(|port| (1..=65535).contains(&port))
}

pub(super) const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

fn check_ports(service: &Value, kind: ServiceType, errors: &mut Vec<FieldError>) {
    let all: Vec<&Value> = ports(service).collect();
    for (index, port) in all.iter().enumerate() {
        let at = |field: &str| format!("spec.ports[{index}].{field}");
        match port["name"].as_str() {
            None if all.len() > 1 => errors.push(FieldError::required(at("name"), "")),
            None => {}
            Some(name) => {
                let wrong = names::dns_label(name);
                if wrong.is_empty() && all[..index].iter().any(|other| other["name"] == name) {
                    errors.push(FieldError::duplicate(at("name"), &port["name"]));
                }
                errors.extend(
                    wrong
                        .iter()
                        .map(|why| FieldError::invalid(at("name"), &port["name"], why)),
                );
            }
        }
        if !is_port(&port["port"]) {
            let found = if port["port"].is_null() {
                &Value::from(0)
            } else {
                &port["port"]
            };
            errors.push(FieldError::invalid(at("port"), found, PORT_RANGE));
        }
        if !PROTOCOLS.iter().any(|protocol| port["protocol"] == *protocol) {
            errors.push(FieldError::unsupported(
                at("protocol"),
                &port["protocol"],
                &PROTOCOLS,
            ));
        }
        let target = &port["targetPort"];
        match target.as_str() {
            Some(name) => {
                let wrong = names::port_name(name);
                errors.extend(
                    wrong
                        .iter()
                        .map(|why| FieldError::invalid(at("targetPort"), target, why)),
                );
            }
            None if is_port(target) => {}
            None => {
                let found = if target.is_null() { &Value::from(0) } else { target };
                errors.push(FieldError::invalid(at("targetPort"), found, PORT_RANGE));
            }
        }
        if let Some(profile) = port["appProtocol"].as_str() {
            let wrong = names::qualified_name(profile);
            errors.extend(
                wrong
                    .iter()
                    .map(|why| FieldError::invalid(at("appProtocol"), &port["appProtocol"], why)),
            );
        }
        if !kind.is_external() && !port["nodePort"].is_null() {
            let name = service["spec"]["type"].as_str().unwrap_or("ClusterIP");
            let why = format!("may not be used when `type` is '{name}'");
            errors.push(FieldError::forbidden(at("nodePort"), &why));
        }
    }
    for (index, port) in all.iter().enumerate() {
        let same = |other: &&&Value| other["protocol"] == port["protocol"] && other["port"] == port["port"];
        if all[..index].iter().any(|other| same(&other)) {
            errors.push(FieldError::duplicate(format!("spec.ports[{index}]"), port));
        }
    }
}

fn check_affinity(spec: &Value, errors: &mut Vec<FieldError>) {
    let timeout = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if spec["sessionAffinity"] == "ClientIP"
        && !timeout
            .as_i64()
            .is_some_and(|seconds| (1..=86400).contains(&seconds))
    {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        errors.push(FieldError::invalid(
            field,
            timeout,
            "must be greater than 0 and less than 86400",
        ));
    }
}

fn check_external(service: &Value, kind: ServiceType, errors: &mut Vec<FieldError>) {
    let spec = &service["spec"];
    for (index, value) in spec["externalIPs"].as_array().into_iter().flatten().enumerate() {
        let at = format!("spec.externalIPs[{index}]");
        let wrong = match value.as_str().unwrap_or_default().parse::<IpAddr>() {
            Ok(address) => special_range(address),
            Err(_) => Some(NOT_AN_IP.into()),
        };
        errors.extend(wrong.map(|why| FieldError::invalid(at, value, why)));
    }
    let has_external_ips = spec["externalIPs"].is_array();
    let policy = &spec["externalTrafficPolicy"];
    if !policy.is_null() && !kind.is_external() && !has_external_ips {
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", policy, why));
    }
    if kind != ServiceType::LoadBalancer && service["status"]["loadBalancer"]["ingress"].is_array() {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("status.loadBalancer.ingress", why));
    }
    let health = &spec["healthCheckNodePort"];
    if !health.is_null() && !wants_health_port(service) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid("spec.healthCheckNodePort", health, why));
    }
    if kind != ServiceType::LoadBalancer {
        if !spec["loadBalancerSourceRanges"].is_null() {
            let why = "may only be used when `type` is 'LoadBalancer'";
            errors.push(FieldError::forbidden("spec.LoadBalancerSourceRanges", why));
        }
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if !spec[field].is_null() {
                let why = "may only be used when `type` is 'LoadBalancer'";
                errors.push(FieldError::forbidden(format!("spec.{field}"), why));
            }
        }
    }
    for (index, value) in spec["loadBalancerSourceRanges"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if value
            .as_str()
            .is_none_or(|text| text.trim().parse::<ipnet::IpNet>().is_err())
        {
            let at = format!("spec.LoadBalancerSourceRanges[{index}]");
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(at, value, why));
        }
    }
}

/// Ranges that neither endpoints nor external addresses may come from (ValidateNonSpecialIP).
pub(super) fn special_range(address: IpAddr) -> Option<String> {
    let (unspecified, link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (
            v4.is_unspecified(),
            v4.is_link_local(),
            v4.octets()[..3] == [224, 0, 0],
        ),
        IpAddr::V6(v6) => {
            let link_local_multicast = v6.is_multicast() && v6.octets()[1] & 0x0f == 2;
            (
                v6.is_unspecified(),
                v6.is_unicast_link_local(),
                link_local_multicast,
            )
        }
    };
    let why = if unspecified {
        return Some(format!("may not be unspecified ({address})"));
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return None;
    };
    Some(why.into())
}
