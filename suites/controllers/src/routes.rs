//! The nodes that a cloud's load balancers send traffic to, by each service's policy.
//!
//! With `externalTrafficPolicy: Cluster` all Ready nodes; with `Local` those with a ready endpoint, as a health check of
//! `healthCheckNodePort` would find. Nodes with the label `node.kubernetes.io/exclude-from-external-load-balancers` are left
//! out. The last routes stay while the API server can't be reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    runtime::watcher::{self, Event},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    balancer::{is_wanted, shown},
    cache::{Cache, events},
    slices::SERVICE_NAME,
};

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The names of the nodes behind each address of a load balancer. Traffic to an address without nodes is dropped.
pub type Routes = BTreeMap<IpAddr, BTreeSet<String>>;

/// Publishes the routes of all load balancer addresses that [`Balancer`](crate::Balancer) assigns, until `stop`.
pub async fn route(client: Client, routes: watch::Sender<Routes>, stop: CancellationToken) {
    let mut changes = stream::select_all([
        events(Api::<Service>::all(client.clone()))
            .map(Change::Service)
            .boxed(),
        events(Api::<Node>::all(client.clone())).map(Change::Node).boxed(),
        events(Api::<EndpointSlice>::all(client))
            .map(Change::Slice)
            .boxed(),
    ]);
    let mut known = Known {
        services: Cache::new(),
        nodes: Cache::new(),
        slices: Cache::new(),
    };
    loop {
        let mut next = tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => change,
        };
        while let Some(change) = next {
            known.apply(change);
            next = changes.next().now_or_never().flatten();
        }
        if known.is_complete() {
            let new = known.routes();
            routes.send_if_modified(|old| {
                let changed = *old != new;
                *old = new;
                changed
            });
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Change {
    Service(watcher::Result<Event<Service>>),
    Node(watcher::Result<Event<Node>>),
    Slice(watcher::Result<Event<EndpointSlice>>),
}

struct Known {
    services: Cache<Service>,
    nodes: Cache<Node>,
    slices: Cache<EndpointSlice>,
}

impl Known {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Service(Ok(event)) => drop(self.services.apply(event)),
            Change::Node(Ok(event)) => drop(self.nodes.apply(event)),
            Change::Slice(Ok(event)) => drop(self.slices.apply(event)),
            Change::Service(Err(error)) | Change::Node(Err(error)) | Change::Slice(Err(error)) => {
                tracing::debug!(%error, "a watch failed and is tried again");
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.services.is_complete() && self.nodes.is_complete() && self.slices.is_complete()
    }

    fn routes(&self) -> Routes {
        let nodes: BTreeSet<String> = self
            .nodes
            .all()
            .filter(|node| receives_traffic(node))
            .map(ResourceExt::name_any)
            .collect();
        let mut routes = Routes::new();
        for service in self.services.all().filter(|service| is_wanted(service)) {
            let policy = service
                .spec
                .as_ref()
                .and_then(|spec| spec.external_traffic_policy.as_deref());
            for address in shown(service).iter().filter_map(|text| text.parse().ok()) {
                let behind = match policy {
                    Some("Local") => &self.with_endpoints(service, address) & &nodes,
                    _ => nodes.clone(),
                };
                routes.entry(address).or_default().extend(behind);
            }
        }
        routes
    }

    /// Nodes that have a ready endpoint of a service, in the family of an address.
    fn with_endpoints(&self, service: &Service, address: IpAddr) -> BTreeSet<String> {
        let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let slices = self
            .slices
            .of(&namespace)
            .filter(|slice| slice.address_type == family && slice.labels().get(SERVICE_NAME) == Some(&name));
        let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten());
        let ready = endpoints.filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.is_none_or(|conditions| conditions.ready != Some(false))
        });
        ready.filter_map(|endpoint| endpoint.node_name.clone()).collect()
    }
}

fn receives_traffic(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready" && condition.status == "True");
    !node.labels().contains_key(EXCLUDED) && ready.next().is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).expect("an object of this kind")
    }

    fn node(name: &str, ready: &str, labels: &Value) -> Node {
        object(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    fn service(name: &str, kind: &str, policy: &str, address: &str) -> Service {
        object(json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"type": kind, "externalTrafficPolicy": policy},
            "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
        }))
    }

    #[test]
    fn all_nodes_or_those_with_ready_endpoints() {
        let mut known = Known {
            services: Cache::new(),
            nodes: Cache::new(),
            slices: Cache::new(),
        };
        for node in [
            node("a", "True", &json!({})),
            node("b", "True", &json!({})),
            node("c", "False", &json!({})),
            node("d", "True", &json!({EXCLUDED: ""})),
        ] {
            known.nodes.put(node);
        }
        for service in [
            service("all", "LoadBalancer", "Cluster", "10.0.9.1"),
            service("local", "LoadBalancer", "Local", "10.0.9.2"),
            service("none", "LoadBalancer", "Local", "10.0.9.3"),
            service("other", "NodePort", "Cluster", "10.0.9.4"),
        ] {
            known.services.put(service);
        }
        let endpoint = |node: &str, conditions: Value| json!({"addresses": ["10.1.0.1"], "nodeName": node, "conditions": conditions});
        let slice = |name: &str, family: &str, endpoints: Vec<Value>| {
            object(json!({
                "metadata": {
                    "name": format!("{name}-{family}"), "namespace": "n",
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": family, "endpoints": endpoints,
            }))
        };
        for slice in [
            slice(
                "local",
                "IPv4",
                vec![
                    endpoint("a", json!({"ready": true})),
                    endpoint("b", json!({"ready": false, "serving": true, "terminating": true})),
                    endpoint("c", json!({"ready": true})),
                ],
            ),
            slice("local", "IPv6", vec![endpoint("b", json!({}))]),
            slice("all", "IPv4", vec![]),
        ] {
            known.slices.put(slice);
        }
        let shown: Vec<String> = known
            .routes()
            .into_iter()
            .map(|(address, nodes)| format!("{address} {}", Vec::from_iter(nodes).join(",")))
            .collect();
        assert_eq!(shown, ["10.0.9.1 a,b", "10.0.9.2 a", "10.0.9.3 "]);
    }
}
