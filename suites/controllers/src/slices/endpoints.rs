//! The endpoints of a service: its pods, with ports and conditions.
//!
//! Source: `staging/src/k8s.io/endpointslice/{reconciler,utils}.go` and `trafficdist/trafficdist.go` of Kubernetes 1.36.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{Node, ObjectReference, Pod, Service, ServicePort},
        discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt;

use super::topology;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// Endpoints that share their ports and so may share a slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) ports: Vec<EndpointPort>,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// The endpoints of a service for one IP family, grouped by their ports. `node` looks nodes up by name.
pub(crate) fn groups<'a>(
    service: &Service,
    family: &str,
    pods: impl Iterator<Item = &'a Pod>,
    node: impl Fn(&str) -> Option<&'a Node>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for pod in pods.filter(|pod| selects(service, pod) && !has_ended(pod)) {
        let Some(address) = address(pod, family) else {
            continue;
        };
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = name.and_then(&node);
        // A pod on an absent node is no endpoint, unless the service publishes pods that aren't ready.
        if node.is_none() && name.is_some() && !publishes_unready(service) {
            continue;
        }
        let ports = ports(service, pod);
        let endpoint = endpoint(service, pod, address, node);
        match groups.iter_mut().find(|group| group.ports == ports) {
            Some(group) => group.endpoints.push(endpoint),
            None => groups.push(Group {
                ports,
                endpoints: vec![endpoint],
            }),
        }
    }
    groups
}

/// Whether a service's selector selects a pod. An empty selector selects none.
pub(crate) fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let labels = pod.labels();
    service.namespace() == pod.namespace()
        && selector.is_some_and(|selector| {
            !selector.is_empty()
                && selector
                    .iter()
                    .all(|(name, value)| labels.get(name) == Some(value))
        })
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn address(pod: &Pod, family: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let is_ipv6 = family == "IPv6";
    let mut all = all.chain(status.pod_ip.as_deref());
    all.find(|ip| ip.contains(':') == is_ipv6).map(str::to_owned)
}

fn publishes_unready(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.publish_not_ready_addresses)
        .unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "Ready")
        .any(|condition| condition.status == "True")
}

fn endpoint(service: &Service, pod: &Pod, address: String, node: Option<&Node>) -> Endpoint {
    let serving = is_ready(pod);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let spec = pod.spec.as_ref();
    let ready = publishes_unready(service) || (serving && !terminating);
    let zone = node.and_then(|node| node.labels().get(ZONE).cloned());
    let node_name = spec.and_then(|spec| spec.node_name.clone());
    let subdomain = spec.and_then(|spec| spec.subdomain.clone());
    let hostname = spec.and_then(|spec| spec.hostname.clone());
    Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: hints(service, ready, zone.as_deref(), node_name.as_deref()),
        hostname: hostname.filter(|_| subdomain == service.metadata.name),
        node_name,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    }
}

/// Hints by `trafficDistribution`, of ready endpoints only. The older annotation has precedence; `topology` adds its hints.
fn hints(service: &Service, ready: bool, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    if topology::is_auto(service) {
        return None;
    }
    let spec = service.spec.as_ref()?;
    let same_node = match spec.traffic_distribution.as_deref()? {
        "PreferClose" | "PreferSameZone" => false,
        "PreferSameNode" => true,
        _ => return None,
    };
    let zones = zone.map(|name| {
        vec![ForZone {
            name: name.to_owned(),
        }]
    });
    let nodes = node.filter(|_| same_node).map(|name| {
        vec![ForNode {
            name: name.to_owned(),
        }]
    });
    (ready && (zones.is_some() || nodes.is_some())).then_some(EndpointHints {
        for_nodes: nodes,
        for_zones: zones,
    })
}

/// The ports of a service at one pod. A named target port that the pod does not have is left out.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let all = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let mut found: Vec<EndpointPort> = all
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(target(port, pod)?),
                protocol: Some(protocol(port).to_owned()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    // Sorted, because the order has no meaning and equal sets must be equal.
    found.sort_by(|a, b| (&a.name, &a.protocol, a.port).cmp(&(&b.name, &b.protocol, b.port)));
    found
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let wanted = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    // Sidecars are init containers that keep running.
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut named = sidecars
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter(|found| {
            found.name.as_ref() == Some(wanted)
                && found.protocol.as_deref().unwrap_or("TCP") == protocol(port)
        });
    named.next().map(|found| found.container_port)
}

/// Labels of a service's slices: those of the service, its name and the controller's.
pub(crate) fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.insert("kubernetes.io/service-name".to_owned(), service.name_any());
    labels.insert(super::MANAGED_BY.to_owned(), super::CONTROLLER.to_owned());
    let headless = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None");
    labels.remove(super::HEADLESS);
    if headless {
        labels.insert(super::HEADLESS.to_owned(), String::new());
    }
    labels
}
