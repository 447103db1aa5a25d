//! API objects: a Service of both families with every kind of frontend, its slices, and the node.

use std::{fmt::Debug, net::IpAddr};

use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    network::FAMILIES,
    sockets::{TCP, UDP},
};

/// The node port of TCP, and of UDP.
pub(crate) const NODE_PORTS: [u16; 2] = [30080, 30053];
/// The port of TCP, and of UDP.
pub(crate) const PORTS: [u16; 2] = [80, 53];

/// Where the Service with this number answers, by families.
pub(crate) fn cluster_ips(number: u8) -> [IpAddr; 2] {
    [format!("10.96.1.{number}"), format!("fd00:96::1:{number}")]
        .map(|text| text.parse().expect("an address"))
}

/// Addresses of its load balancer.
pub(crate) fn load_balancers(number: u8) -> [IpAddr; 2] {
    [format!("198.51.100.{number}"), format!("2001:db8:9::{number}")]
        .map(|text| text.parse().expect("an address"))
}

/// Its external IPs.
pub(crate) fn external_ips(number: u8) -> [IpAddr; 2] {
    [format!("203.0.113.{number}"), format!("2001:db8:a::{number}")]
        .map(|text| text.parse().expect("an address"))
}

/// A Service of every kind of frontend, with node ports if its number is 1.
pub(crate) struct Everything {
    pub(crate) name: &'static str,
    pub(crate) number: u8,
    /// Further fields of the specification.
    pub(crate) spec: Value,
    /// Backends of both families: address, and whether it is this node's.
    pub(crate) backends: Vec<([IpAddr; 2], bool)>,
}

impl Everything {
    pub(crate) async fn create(&self, client: &Client) {
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        put(&services, self.name, &self.service()).await;
        let ingress: Vec<Value> = load_balancers(self.number)
            .iter()
            .map(|ip| json!({"ip": ip, "ipMode": "VIP"}))
            .collect();
        let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        services
            .patch_status(self.name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .expect("its load balancer");
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
        for family in [0, 1] {
            let name = format!("{}-{family}", self.name);
            put(&slices, &name, &self.slice(&name, family)).await;
        }
    }

    fn service(&self) -> Value {
        let ips = cluster_ips(self.number);
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "type": "LoadBalancer",
                "clusterIP": ips[0], "clusterIPs": ips,
                "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
                "externalIPs": external_ips(self.number),
                "ports": [
                    {"name": "tcp", "port": PORTS[0], "targetPort": TCP, "nodePort": NODE_PORTS[0] + u16::from(self.number) - 1},
                    {"name": "udp", "port": PORTS[1], "targetPort": UDP, "protocol": "UDP", "nodePort": NODE_PORTS[1] + u16::from(self.number) - 1},
                ],
            },
        });
        let spec = self.spec.as_object().expect("fields");
        for (field, value) in spec {
            object["spec"][field] = value.clone();
        }
        object
    }

    fn slice(&self, name: &str, family: usize) -> Value {
        let endpoints: Vec<Value> = self
            .backends
            .iter()
            .map(|(addresses, here)| {
                json!({"addresses": [addresses[family]], "nodeName": if *here { "here" } else { "there" }})
            })
            .collect();
        let address_type = if family == 0 { "IPv4" } else { "IPv6" };
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": self.name},
            },
            "addressType": address_type,
            "ports": [{"name": "tcp", "port": TCP}, {"name": "udp", "port": UDP, "protocol": "UDP"}],
            "endpoints": endpoints,
        })
    }
}

/// The Node object of this node.
pub(crate) async fn create_node(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}});
    put(&nodes, "here", &node).await;
    let addresses = FAMILIES.map(|family| json!({"type": "InternalIP", "address": family.node}));
    let status = json!({"status": {"addresses": addresses}});
    nodes
        .patch_status("here", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .expect("its addresses");
}

/// Creates an object, or makes the one that is there like it.
pub(crate) async fn put<K>(api: &Api<K>, name: &str, object: &Value)
where
    K: Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let there = api.get_opt(name).await.expect("an answer").is_some();
    if there {
        let patch = Patch::Merge(object);
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .expect("patched");
    } else {
        let object = serde_json::from_value(object.clone()).expect("an object");
        api.create(&PostParams::default(), &object)
            .await
            .expect("created");
    }
}
