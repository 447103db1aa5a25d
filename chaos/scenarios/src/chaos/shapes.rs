//! The objects of a world, as the API takes them. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use cluster::Family;
use harness::{names::Key, objects::MANAGER};
use oracle::{finding, history::Transport};
use serde_json::{Value, json};

use super::{
    schedule::{HOMES, Namespace, Service, Slice, home},
    words,
    world::BALANCED,
};

/// Port of every Service.
pub const PORT: u16 = 7480;
/// The first port of backends: see [`target`].
pub const TARGETS: u16 = 8001;
/// The transports by which every frontend is dialled.
pub const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// Where backends listen for a Service. Those whose names are the beginnings of each other share a port, and so do those whose names are
/// equal: what is released, or found, by such a name then takes an endpoint of another.
#[must_use]
pub fn target(service: u8) -> u16 {
    match HOMES[usize::from(service)].0 {
        Namespace::Prefixes => TARGETS,
        Namespace::First | Namespace::Second => TARGETS + 1,
    }
}

/// The family of a schedule's addresses: seeds have those of the cluster by turns, the even ones the first of two. An
/// EndpointSlice that moves between Services needs one that both have.
#[must_use]
pub fn family(families: &[Family], seed: u64) -> Option<Family> {
    let turn = seed.checked_rem(u64::try_from(families.len()).ok()?)?;
    families.get(usize::try_from(turn).ok()?).copied()
}

/// Names, addresses and ports that a cluster has given.
#[derive(Clone, Debug)]
pub struct Shapes {
    /// Family of all addresses.
    pub family: Family,
    /// Names of the namespaces.
    pub namespaces: BTreeMap<Namespace, String>,
    /// Cluster IPs by Service: those that are created again get theirs back.
    pub cluster_ips: BTreeMap<u8, IpAddr>,
    /// Node ports by number.
    pub node_ports: Vec<u16>,
    /// Whether the Service [`BALANCED`] is of type LoadBalancer.
    pub is_balanced: bool,
    /// The load balancer's address, once it has one.
    pub balancer: Option<IpAddr>,
    /// An endpoint that is ready, of each backend.
    pub endpoints: Vec<Value>,
}

impl Shapes {
    fn namespace(&self, namespace: Namespace) -> &str {
        &self.namespaces[&namespace]
    }

    /// Namespace and name of a Service.
    #[must_use]
    pub fn service_key(&self, service: u8) -> Key {
        let (namespace, name) = HOMES[usize::from(service)];
        Key::service(self.namespace(namespace), name)
    }

    /// Namespace and name of a slice.
    #[must_use]
    pub fn slice_key(&self, slice: u8) -> Key {
        Key::slice(self.namespace(home(slice).0), &words::slice_name(slice))
    }

    /// A Service.
    #[must_use]
    pub fn service(&self, number: u8, service: &Service) -> Value {
        let (namespace, name) = HOMES[usize::from(number)];
        let node_port = service
            .node_port
            .and_then(|port| self.node_ports.get(usize::from(port)));
        let is_balanced = number == BALANCED && self.is_balanced;
        let kind = match service.node_port {
            _ if is_balanced => "LoadBalancer",
            Some(_) => "NodePort",
            None => "ClusterIP",
        };
        let policy = |is_local: bool| if is_local { "Local" } else { "Cluster" };
        let port = |transport: Transport| {
            let protocol = finding::transport(transport);
            json!({
                "name": protocol.to_lowercase(), "protocol": protocol, "port": PORT,
                "targetPort": target(number), "nodePort": node_port,
            })
        };
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": self.namespace(namespace) },
            "spec": {
                "type": kind,
                "clusterIP": self.cluster_ips.get(&number),
                "ipFamilies": [self.family.to_string()],
                "ports": TRANSPORTS.map(port),
                "sessionAffinity": if service.affinity { "ClientIP" } else { "None" },
                // The default.
                "sessionAffinityConfig": null,
                "internalTrafficPolicy": policy(service.internal_local),
                // Not for clients inside alone.
                "externalTrafficPolicy": (kind != "ClusterIP").then(|| policy(service.external_local)),
                "allocateLoadBalancerNodePorts": is_balanced.then_some(false),
                "loadBalancerIP": self.balancer.filter(|_| is_balanced),
            },
        })
    }

    /// A slice.
    #[must_use]
    pub fn slice(&self, number: u8, slice: &Slice) -> Value {
        let (namespace, _) = home(number);
        let labels = json!({
            "kubernetes.io/service-name": HOMES[usize::from(slice.of)].1,
            "endpointslice.kubernetes.io/managed-by": MANAGER,
        });
        let port = |transport: Transport| {
            let protocol = finding::transport(transport);
            json!({
                "name": protocol.to_lowercase(), "protocol": protocol, "port": target(slice.of),
            })
        };
        let endpoints = slice.endpoints.as_ref().map(|all| {
            let listed = all.iter().map(|endpoint| {
                let mut one = self.endpoints[usize::from(endpoint.backend)].clone();
                let (ready, serving, terminating) = endpoint.condition.fields();
                one["conditions"] = json!({ "ready": ready, "serving": serving, "terminating": terminating });
                one
            });
            listed.collect::<Value>()
        });
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": self.family.to_string(),
            "metadata": {
                "name": words::slice_name(number), "namespace": self.namespace(namespace), "labels": labels,
            },
            "endpoints": endpoints, "ports": TRANSPORTS.map(port),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_take_turns_in_the_families_of_a_cluster() {
        let both = [Family::IPv4, Family::IPv6];
        assert_eq!(
            [0, 1, 8, 9].map(|seed| family(&both, seed)),
            [both[0], both[1], both[0], both[1]].map(Some)
        );
        assert_eq!(family(&both[1..], 4), Some(Family::IPv6));
        assert_eq!(family(&[], 4), None);
    }
}
