//! Services of a scenario as API objects.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cluster::Family;
use harness::{
    names::Key,
    objects::{MANAGER, Objects},
    pods::Backend as Pod,
    verdict::Halt,
};
use serde_json::{Value, json};

use crate::{
    compare::TARGETS,
    state::State,
    step::{Address, Backend, Change, Condition, Kind, Service, To},
};

/// No load balancer controller serves this class: the player writes addresses itself.
const CLASS: &str = "plumbline.test/compare";
/// The first health check port; each Service has its own.
const HEALTH_CHECKS: u16 = 32000;

/// A Service's cluster IP, in both clusters.
pub(super) fn cluster_ip(service: u8) -> IpAddr {
    Ipv4Addr::new(10, 96, 50, service).into()
}

/// The IP address of a symbolic one, as labs assign them.
pub(super) fn address(address: Address) -> IpAddr {
    let [c, d] = match address {
        Address::Node1 => [0, 101],
        Address::Node2 => [0, 102],
        Address::Outside => [0, 10],
        Address::Routed1 => [1, 201],
        Address::Routed2 => [1, 202],
    };
    Ipv4Addr::new(172, 30, c, d).into()
}

/// The socket address of a destination. `None`: the Service is deleted.
pub(super) fn destination(state: &State, to: To) -> Option<SocketAddr> {
    Some(match to {
        To::ClusterIp { service } => {
            let port = state.services.get(&service)?.port;
            (cluster_ip(service), port).into()
        }
        To::At { address: at, port } => (address(at), port).into(),
        To::Loopback { port } => (Ipv4Addr::LOCALHOST, port).into(),
    })
}

/// Changes a Service from `before` to its new state.
///
/// # Errors
/// The API refuses the change.
pub(super) async fn write(
    objects: &Objects,
    namespace: &str,
    pods: &[Pod],
    before: Option<&Service>,
    change: &Change,
) -> Result<(), Halt> {
    let name = format!("s{}", change.service);
    let (service, slice) = (Key::service(namespace, &name), Key::slice(namespace, &name));
    let Some(to) = &change.to else {
        objects.delete(&service).await?;
        objects.delete(&slice).await?;
        return Ok(());
    };
    let endpoints = endpoints(to, pods)?;
    let Some(before) = before else {
        let metadata = json!({ "name": name, "namespace": namespace });
        let object = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec(change.service, to) });
        objects.create(&object).await?;
        let labels = json!({
            "kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": MANAGER,
        });
        let target = TARGETS + u16::from(change.service);
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": name, "namespace": namespace, "labels": labels },
            "endpoints": endpoints,
            "ports": [
                { "name": "t", "protocol": "TCP", "port": target },
                { "name": "u", "protocol": "UDP", "port": target },
            ],
        });
        objects.create(&object).await?;
        return show(objects, &service, &to.load_balancer).await;
    };
    // Addresses must be removed before the type changes, and added after it.
    let gone = to.load_balancer.is_empty() && !before.load_balancer.is_empty();
    if gone {
        show(objects, &service, &[]).await?;
    }
    let (was, is) = (spec(change.service, before), spec(change.service, to));
    if was != is {
        objects.patch(&service, json!({ "spec": is })).await?;
    }
    if !gone && (to.load_balancer != before.load_balancer || to.kind != before.kind) {
        show(objects, &service, &to.load_balancer).await?;
    }
    if to.endpoints != before.endpoints {
        objects.patch(&slice, json!({ "endpoints": endpoints })).await?;
    }
    Ok(())
}

async fn show(objects: &Objects, service: &Key, addresses: &[Address]) -> Result<(), Halt> {
    let shown = |one: &Address| json!({ "ip": address(*one), "ipMode": "VIP" });
    let ingress: Vec<Value> = addresses.iter().map(shown).collect();
    let status = match ingress.len() {
        0 => json!({ "loadBalancer": { "ingress": null } }),
        _ => json!({ "loadBalancer": { "ingress": ingress } }),
    };
    objects.patch_status(service, status).await?;
    Ok(())
}

/// The whole spec: as a merge patch, too, it removes every field that it does not have.
fn spec(number: u8, service: &Service) -> Value {
    let port = |name: &str, protocol: &str| {
        json!({
            "name": name, "protocol": protocol, "port": service.port,
            "targetPort": TARGETS + u16::from(number), "nodePort": service.node_port,
        })
    };
    let is_balanced = service.kind == Kind::LoadBalancer;
    let is_external = service.kind != Kind::ClusterIP || !service.external_ips.is_empty();
    let policy = |is_local: bool| if is_local { "Local" } else { "Cluster" };
    let externals: Vec<IpAddr> = service.external_ips.iter().map(|one| address(*one)).collect();
    json!({
        "type": service.kind,
        "clusterIP": cluster_ip(number),
        "ports": [port("t", "TCP"), port("u", "UDP")],
        "externalIPs": externals,
        "internalTrafficPolicy": policy(service.internal_local),
        "externalTrafficPolicy": is_external.then(|| policy(service.external_local)),
        "sessionAffinity": if service.affinity { "ClientIP" } else { "None" },
        "allocateLoadBalancerNodePorts": is_balanced.then_some(service.node_port.is_some()),
        "loadBalancerClass": is_balanced.then_some(CLASS),
        "healthCheckNodePort": (is_balanced && service.external_local).then_some(HEALTH_CHECKS + u16::from(number)),
    })
}

/// The pod of a backend.
pub(super) fn pod(pods: &[Pod], backend: Backend) -> Result<&Pod, Halt> {
    let pod = pods.iter().find(|pod| pod.plain() == backend.name());
    pod.ok_or_else(|| Halt::Harness(format!("there is no pod {backend}")))
}

fn endpoints(service: &Service, pods: &[Pod]) -> Result<Value, Halt> {
    let endpoint = |(backend, condition): (&Backend, &Condition)| {
        let mut endpoint = pod(pods, *backend)?.endpoint(Family::IPv4, *condition == Condition::Ready)?;
        if *condition == Condition::Terminating {
            endpoint["conditions"] = json!({ "ready": false, "serving": true, "terminating": true });
        }
        Ok(endpoint)
    };
    service.endpoints.iter().map(endpoint).collect()
}
