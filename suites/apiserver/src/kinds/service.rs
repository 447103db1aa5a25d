//! Service: defaults (`pkg/apis/core/v1/defaults.go`) and what an update carries over
//! (`pkg/registry/core/service/strategy.go`).

use serde_json::{Map, Value, json};

use crate::config::Config;

/// `spec.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceType {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

impl ServiceType {
    /// It has a ClusterIP (or is headless).
    pub(crate) fn needs_cluster_ip(self) -> bool {
        self != Self::ExternalName
    }

    /// It is reached from outside through a port of each node.
    pub(crate) fn is_external(self) -> bool {
        matches!(self, Self::NodePort | Self::LoadBalancer)
    }
}

/// The type of a service; an unknown one, which the checks refuse, counts as ClusterIP.
pub(crate) fn service_type(service: &Value) -> ServiceType {
    match service["spec"]["type"].as_str() {
        Some("NodePort") => ServiceType::NodePort,
        Some("LoadBalancer") => ServiceType::LoadBalancer,
        Some("ExternalName") => ServiceType::ExternalName,
        _ => ServiceType::ClusterIp,
    }
}

/// `clusterIP: None`.
pub(crate) fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None"
}

/// The families this cluster has, the primary one first.
pub(crate) fn families_of(config: &Config) -> Vec<&'static str> {
    config
        .service_cidrs
        .iter()
        .map(|cidr| if cidr.addr().is_ipv4() { "IPv4" } else { "IPv6" })
        .collect()
}

/// Whether node ports are wanted: LoadBalancers can do without.
pub(crate) fn wants_node_ports(service: &Value) -> bool {
    match service_type(service) {
        ServiceType::NodePort => true,
        ServiceType::LoadBalancer => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        ServiceType::ClusterIp | ServiceType::ExternalName => false,
    }
}

/// Whether the service has a port of its own for health checks of its nodes.
pub(crate) fn wants_health_port(service: &Value) -> bool {
    service_type(service) == ServiceType::LoadBalancer && service["spec"]["externalTrafficPolicy"] == "Local"
}

pub(super) fn prepare_create(service: &mut Value, config: &Config) {
    service["status"] = json!({"loadBalancer": {}});
    defaults(service);
    normalize_cluster_ips(service, None);
    default_families(service, config);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value, config: &Config) {
    defaults(new);
    carry_over(new, old);
    normalize_cluster_ips(new, Some(old));
    trim_families(new, old);
    drop_what_the_type_lost(new, old);
    default_families(new, config);
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    if !new["status"]["loadBalancer"].is_object() {
        new["status"]["loadBalancer"] = json!({});
    }
}

fn default(spec: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let slot = spec.entry(field).or_insert(Value::Null);
    if slot.is_null() || *slot == "" {
        *slot = value.into();
    }
}

fn drop_empty(map: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        if map.get(*field).is_some_and(|value| *value == "" || *value == 0) {
            map.remove(*field);
        }
    }
}

pub(super) fn defaults(service: &mut Value) {
    if !service["spec"].is_object() {
        service["spec"] = json!({});
    }
    let kind = service_type(service);
    let Some(spec) = service["spec"].as_object_mut() else {
        return;
    };
    drop_empty(
        spec,
        &[
            "clusterIP",
            "externalName",
            "loadBalancerIP",
            "healthCheckNodePort",
            "ipFamilyPolicy",
        ],
    );
    if spec.get("publishNotReadyAddresses") == Some(&Value::Bool(false)) {
        spec.remove("publishNotReadyAddresses");
    }
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "None" {
        spec.remove("sessionAffinityConfig");
    } else if spec["sessionAffinity"] == "ClientIP"
        && spec
            .get("sessionAffinityConfig")
            .and_then(|c| c.pointer("/clientIP/timeoutSeconds"))
            .is_none()
    {
        // Three hours, upstream's DefaultClientIPServiceAffinitySeconds.
        spec.insert(
            "sessionAffinityConfig".into(),
            json!({"clientIP": {"timeoutSeconds": 10800}}),
        );
    }
    if kind.needs_cluster_ip() {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    let has_external_ips = spec.get("externalIPs").is_some_and(Value::is_array);
    if kind.is_external() || (kind == ServiceType::ClusterIp && has_external_ips) {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == ServiceType::LoadBalancer {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(port) = port.as_object_mut() else {
            continue;
        };
        drop_empty(port, &["name", "nodePort"]);
        default(port, "protocol", "TCP");
        if port
            .get("targetPort")
            .is_none_or(|target| *target == 0 || *target == "")
        {
            let number = port.get("port").cloned().unwrap_or(Value::Null);
            port.insert("targetPort".into(), number);
        }
    }
}

/// `clusterIP` and the first of `clusterIPs` are one thing; old clients know only the former.
fn normalize_cluster_ips(service: &mut Value, old: Option<&Value>) {
    let Some(spec) = service["spec"].as_object_mut() else {
        return;
    };
    let one = spec.get("clusterIP").cloned();
    let all = spec.get("clusterIPs").cloned();
    let Some(old) = old else {
        if let (Some(one), None) = (one, all) {
            spec.insert("clusterIPs".into(), json!([one]));
        }
        return;
    };
    let (old_one, old_all) = (old["spec"].get("clusterIP"), old["spec"].get("clusterIPs"));
    let changed_one = one.as_ref() != old_one;
    let changed_all = all.as_ref() != old_all;
    if changed_one && (!changed_all || all.is_none()) {
        match one {
            Some(one) => drop(spec.insert("clusterIPs".into(), json!([one]))),
            None => drop(spec.remove("clusterIPs")),
        }
    }
}

/// Upstream's `patchAllocatedValues`: a PUT of a manifest without the addresses and ports that were given out
/// keeps them.
fn carry_over(new: &mut Value, old: &Value) {
    let (new_type, old_type) = (service_type(new), service_type(old));
    if new_type.needs_cluster_ip() && old_type.needs_cluster_ip() {
        let blank = |field: &str, value: &Value| value["spec"].get(field).is_none();
        for field in ["clusterIP", "clusterIPs"] {
            let is_same = new["spec"].get("clusterIP") == old["spec"].get("clusterIP");
            if let Some(value) = old["spec"].get(field)
                && blank(field, new)
                && (field == "clusterIP" || is_same)
            {
                new["spec"][field] = value.clone();
            }
        }
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            if let Some(value) = old["spec"].get(field)
                && blank(field, new)
            {
                new["spec"][field] = value.clone();
            }
        }
    }
    if wants_node_ports(new) && wants_node_ports(old) {
        let known: Vec<(Value, Value, Value)> = old["spec"]["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| {
                (
                    port["protocol"].clone(),
                    port["port"].clone(),
                    port["nodePort"].clone(),
                )
            })
            .collect();
        let taken: Vec<Value> = ports(new).map(|port| port["nodePort"].clone()).collect();
        for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
            let same = known
                .iter()
                .find(|(protocol, number, _)| *protocol == port["protocol"] && *number == port["port"]);
            if let Some((_, _, node_port)) = same
                && port.get("nodePort").is_none()
                && !node_port.is_null()
                && !taken.contains(node_port)
            {
                port["nodePort"] = node_port.clone();
            }
        }
    }
    if wants_health_port(new)
        && wants_health_port(old)
        && let Some(port) = old["spec"].get("healthCheckNodePort")
        && new["spec"].get("healthCheckNodePort").is_none()
    {
        new["spec"]["healthCheckNodePort"] = port.clone();
    }
}

/// A service that becomes SingleStack gives up its second family and address, unless the client chose anew.
fn trim_families(new: &mut Value, old: &Value) {
    let (before, after) = (&old["spec"]["ipFamilyPolicy"], &new["spec"]["ipFamilyPolicy"]);
    if *after != "SingleStack" || before == after {
        return;
    }
    for field in ["ipFamilies", "clusterIPs"] {
        if new["spec"][field] == old["spec"][field]
            && let Some(list) = new["spec"][field].as_array_mut()
        {
            list.truncate(1);
        }
    }
}

/// The ports of a service.
pub(crate) fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    service["spec"]["ports"].as_array().into_iter().flatten()
}

/// Upstream's `dropTypeDependentFields`: what only the old type had goes, if the client did not set it anew.
fn drop_what_the_type_lost(new: &mut Value, old: &Value) {
    let (new_type, old_type) = (service_type(new), service_type(old));
    let unchanged = |new: &Value, field: &str| new["spec"].get(field) == old["spec"].get(field);
    let mut lost: Vec<&str> = Vec::new();
    if old_type.needs_cluster_ip() && !new_type.needs_cluster_ip() {
        lost.extend([
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ]);
    }
    if wants_health_port(old) && !wants_health_port(new) {
        lost.push("healthCheckNodePort");
    }
    if old_type.is_external() && !new_type.is_external() {
        lost.push("externalTrafficPolicy");
    }
    if old_type == ServiceType::LoadBalancer && new_type != ServiceType::LoadBalancer {
        new["status"] = json!({"loadBalancer": {}});
        lost.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    let drop_node_ports = wants_node_ports(old) && !wants_node_ports(new) && {
        let of = |service| {
            ports(service)
                .map(|port| port["nodePort"].clone())
                .collect::<Vec<_>>()
        };
        of(new) == of(old)
    };
    lost.retain(|field| unchanged(new, field));
    if let Some(spec) = new["spec"].as_object_mut() {
        for field in lost {
            spec.remove(field);
        }
    }
    if drop_node_ports {
        for port in new["spec"]["ports"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            port.remove("nodePort");
        }
    }
}

fn default_families(service: &mut Value, config: &Config) {
    if !service_type(service).needs_cluster_ip() {
        return;
    }
    let have = families_of(config);
    let headless_without_selector = is_headless(service) && service["spec"].get("selector").is_none();
    let addresses: Vec<&'static str> = service["spec"]["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ip| ip.as_str()?.parse::<std::net::IpAddr>().ok())
        .map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" })
        .collect();
    let Some(spec) = service["spec"].as_object_mut() else {
        return;
    };
    if !spec.contains_key("ipFamilyPolicy") {
        let policy = if headless_without_selector {
            "RequireDualStack"
        } else {
            "SingleStack"
        };
        spec.insert("ipFamilyPolicy".into(), policy.into());
    }
    let two = match spec["ipFamilyPolicy"].as_str() {
        Some("RequireDualStack") => headless_without_selector || have.len() == 2,
        Some("PreferDualStack") => have.len() == 2,
        _ => false,
    };
    let mut families: Vec<Value> = match spec.get("ipFamilies").and_then(Value::as_array) {
        Some(listed) => listed.clone(),
        None if !addresses.is_empty() => addresses.iter().copied().map(Value::from).collect(),
        None => vec![have[0].into()],
    };
    if two && families.len() == 1 {
        families.push(if families[0] == "IPv4" {
            "IPv6".into()
        } else {
            "IPv4".into()
        });
    }
    spec.insert("ipFamilies".into(), families.into());
}
