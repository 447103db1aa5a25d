//! Services.

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Decoded, Defect, SERVICE_PROXY_NAME, name,
    parts::{address, choice, expected, items, optional_number, port, range},
};
use crate::{
    endpoint_address::Family,
    findings::Reason,
    model::{Policy, Service, ServicePort, SourceRanges},
};

/// Default `timeoutSeconds` of the session affinity `ClientIP` (`DefaultClientIPServiceAffinitySeconds`).
const AFFINITY_SECONDS: u32 = 10_800;
/// Largest `timeoutSeconds` (`MaxClientIPServiceAffinitySeconds`).
const AFFINITY_LIMIT: u32 = 86_400;

/// A Service. One that is not balanced here has only its name and age, and no defects.
///
/// # Errors
/// It has no name.
pub fn service(object: &Value) -> Result<Decoded<Service>, Defect> {
    let mut defects = Vec::new();
    let mut service = Service::new(name(object)?);
    if balanced(object) {
        read(object, &mut service, &mut defects);
    }
    Ok(Decoded {
        object: service,
        defects,
    })
}

/// `spec.type`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Type {
    #[default]
    ClusterIp,
    NodePort,
    LoadBalancer,
}

/// Whether this agent serves it.
fn balanced(service: &Value) -> bool {
    let (labels, spec) = (&service["metadata"]["labels"], &service["spec"]);
    labels.get(SERVICE_PROXY_NAME).is_none() && spec["type"] != "ExternalName" && spec["clusterIP"] != "None"
}

fn read(object: &Value, service: &mut Service, defects: &mut Vec<Defect>) {
    service.created = match &object["metadata"]["creationTimestamp"] {
        Value::Null => None,
        value => Time::deserialize(value)
            .map(|time| time.0.as_second())
            .map_err(|_| defects.push(expected("metadata.creationTimestamp", "a time", value)))
            .ok(),
    };
    let spec = &object["spec"];
    let types = [
        ("ClusterIP", Type::ClusterIp),
        ("NodePort", Type::NodePort),
        ("LoadBalancer", Type::LoadBalancer),
    ];
    let kind = choice("spec.type", &spec["type"], &types, defects);
    let policy = |field: &str, defects: &mut Vec<Defect>| {
        let policies = [("Cluster", Policy::Cluster), ("Local", Policy::Local)];
        choice(&format!("spec.{field}"), &spec[field], &policies, defects)
    };
    service.external_policy = policy("externalTrafficPolicy", defects);
    service.internal_policy = policy("internalTrafficPolicy", defects);
    service.affinity_seconds = affinity(spec, defects);
    service.ports = ports(&spec["ports"], kind, defects);
    service.cluster_ips = cluster_ips(spec, defects);
    let families = Families(service.cluster_ips.iter().map(|ip| Family::of(*ip)).collect());
    service.external_ips = families.external_ips(spec, defects);
    if kind == Type::LoadBalancer {
        let status = &object["status"]["loadBalancer"]["ingress"];
        service.load_balancer_ips = families.load_balancer_ips(status, defects);
        service.source_ranges = source_ranges(&spec["loadBalancerSourceRanges"], defects);
        if service.external_policy == Policy::Local {
            let port = &spec["healthCheckNodePort"];
            service.health_check_port = optional_number("spec.healthCheckNodePort", port, defects);
        }
    }
}

fn affinity(spec: &Value, defects: &mut Vec<Defect>) -> u32 {
    let choices = [("None", false), ("ClientIP", true)];
    if !choice(
        "spec.sessionAffinity",
        &spec["sessionAffinity"],
        &choices,
        defects,
    ) {
        return 0;
    }
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if seconds.is_null() {
        return AFFINITY_SECONDS;
    }
    let read = seconds.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    read.filter(|seconds| (1..=AFFINITY_LIMIT).contains(seconds))
        .unwrap_or_else(|| {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            let what = format!("a number from 1 to {AFFINITY_LIMIT}");
            defects.push(expected(field, &what, seconds));
            AFFINITY_SECONDS
        })
}

fn ports(ports: &Value, kind: Type, defects: &mut Vec<Defect>) -> Vec<ServicePort> {
    let (mut seen, mut node_ports) = (BTreeSet::new(), BTreeSet::new());
    let mut read = Vec::new();
    for (field, value) in items("spec.ports", ports, defects) {
        let Some((name, port, protocol)) = port(&field, value, defects) else {
            continue;
        };
        let repeated = |field: String, port: u16| Defect {
            reason: Reason::PortRepeated,
            field,
            problem: format!("{protocol} {port} is there already; the first one counts"),
        };
        if !seen.insert((port, protocol)) {
            defects.push(repeated(field, port));
            continue;
        }
        let mut node_port = None;
        if kind != Type::ClusterIp {
            let field = format!("{field}.nodePort");
            node_port = optional_number(&field, &value["nodePort"], defects);
            if let Some(number) = node_port
                && !node_ports.insert((number, protocol))
            {
                defects.push(repeated(field, number));
                node_port = None;
            }
        }
        // A name is resolved by the slices.
        let target_port = match &value["targetPort"] {
            Value::Null => Some(port),
            target => target.as_u64().and_then(|target| u16::try_from(target).ok()),
        };
        read.push(ServicePort {
            name,
            port,
            protocol,
            node_port,
            target_port,
        });
    }
    read
}

fn cluster_ips(spec: &Value, defects: &mut Vec<Defect>) -> Vec<IpAddr> {
    let all = match items("spec.clusterIPs", &spec["clusterIPs"], defects) {
        // From an API server that does not know the list.
        all if all.is_empty() => vec![("spec.clusterIP".to_owned(), &spec["clusterIP"])],
        all => all,
    };
    let mut addresses = BTreeSet::new();
    for (field, value) in all {
        match value.as_str() {
            // Headless, or not allocated yet.
            Some("None" | "") => {}
            None if value.is_null() => {}
            _ => addresses.extend(address(&field, None, Reason::FrontendRefused, value, defects)),
        }
    }
    addresses.into_iter().collect()
}

/// The families of a Service's cluster IPs.
struct Families(BTreeSet<Family>);

impl Families {
    fn external_ips(&self, spec: &Value, defects: &mut Vec<Defect>) -> Vec<IpAddr> {
        let mut addresses = BTreeSet::new();
        for (field, value) in items("spec.externalIPs", &spec["externalIPs"], defects) {
            addresses.extend(self.address(&field, value, defects));
        }
        addresses.into_iter().collect()
    }

    fn load_balancer_ips(&self, ingress: &Value, defects: &mut Vec<Defect>) -> Vec<IpAddr> {
        let mut addresses = BTreeSet::new();
        for (field, value) in items("status.loadBalancer.ingress", ingress, defects) {
            let ip = &value["ip"];
            // A load balancer with only a name sends to node ports.
            if value.is_object() && (ip.is_null() || ip == "") {
                continue;
            }
            match &value["ipMode"] {
                Value::Null => {}
                mode if mode == "VIP" || mode == "" => {}
                mode if mode == "Proxy" => continue,
                mode => {
                    defects.push(expected(&format!("{field}.ipMode"), "VIP or Proxy", mode));
                    continue;
                }
            }
            addresses.extend(self.address(&format!("{field}.ip"), ip, defects));
        }
        addresses.into_iter().collect()
    }

    /// A frontend's address, of one of these families.
    fn address(&self, field: &str, value: &Value, defects: &mut Vec<Defect>) -> Option<IpAddr> {
        let found = address(field, None, Reason::FrontendRefused, value, defects)?;
        let had = self.0.contains(&Family::of(found));
        if !had {
            let families: Vec<_> = self.0.iter().map(ToString::to_string).collect();
            let what = match families.as_slice() {
                [] => "no address of a Service without cluster IP".to_owned(),
                families => format!(
                    "an {} address, as the Service's cluster IPs are",
                    families.join(" or ")
                ),
            };
            let defect = expected(field, &what, value);
            let reason = Reason::FrontendRefused;
            defects.push(Defect { reason, ..defect });
        }
        had.then_some(found)
    }
}

fn source_ranges(list: &Value, defects: &mut Vec<Defect>) -> Option<SourceRanges> {
    const FIELD: &str = "spec.loadBalancerSourceRanges";
    let refused = |field: &str, found: &Value| {
        let mut defect = expected(field, "a range such as 192.0.2.0/24", found);
        defect.problem.push_str(", so that it admits no client");
        Defect {
            reason: Reason::RangeRefused,
            ..defect
        }
    };
    let mut read = SourceRanges::default();
    if !matches!(list, Value::Null | Value::Array(_)) {
        defects.push(refused(FIELD, list));
        read.unreadable = true;
        return Some(read);
    }
    for (field, value) in items(FIELD, list, defects) {
        match range(value) {
            Some(range) => _ = read.ranges.insert(range),
            None => {
                defects.push(refused(&field, value));
                read.unreadable = true;
            }
        }
    }
    (read.unreadable || !read.ranges.is_empty()).then_some(read)
}
