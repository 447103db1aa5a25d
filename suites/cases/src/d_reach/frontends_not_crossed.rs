//! `frontends-not-crossed`: a node port serves at no ClusterIP and at no address of a pod, and the Service's port at no
//! address of a node, while its backend lives. Listeners of hosts, on a port that no Service uses, stay reachable from
//! outside and from hosts, also where external IPs or load balancers' addresses are the nodes' own.
//!
//! The listeners answered before any of the Services existed. Their port is no node port.
use std::time::Duration;

use cluster::{Capability, Family};
use futures::future::try_join_all;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, Vantage},
    host_servers::Server,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};
use oracle::history::Transport;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "frontends-not-crossed",
    area: super::AREA,
    claims: &["frontends-not-crossed"],
    sentence: "node ports serve only on node addresses, Service ports only on Service addresses, and listeners of hosts stay reachable",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside, Capability::HostNetwork],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("frontends_not_crossed.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TARGET: u16 = 8080;
/// Of the Service whose frontends may not be crossed.
const PORT: u16 = 7480;
/// Of those whose addresses are the nodes', by the feature that a target must declare.
const AT_NODES: [(&str, u16); 2] = [("external-ips", 7481), ("loadbalancer", 7482)];
/// A load balancer class without a controller: the case writes the status.
const BY_HAND: &str = "plumbline.example/written-by-hand";
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a backend, and listeners on hosts");
    let namespace = cx.namespace().await?;
    let backend = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET])
        .await?
        .remove(0);
    let listeners = listeners(cx, &namespace).await?;
    let to_listeners = to_listeners(cx, &listeners);
    let around: Vec<Client> = cx
        .clients()
        .on_hosts()
        .into_iter()
        .chain(cx.clients().outside())
        .collect();
    let within = Within::from_now(cx.limits().endpoints);
    probing::control(cx, "the listeners answer", &around, &to_listeners, within).await?;

    cx.phase("the Services, some at the nodes' addresses");
    let mut vantages = vec![(around, to_listeners)];
    let (mut served, mut at_nodes) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let made = create(cx, &namespace, family, "NodePort", PORT, &backend).await?;
        let axis = format!("{family}, frontends");
        for transport in TRANSPORTS {
            let by = identities([&backend], transport, TARGET);
            served.push(made.at_cluster_ip(&axis, transport, PORT, &by));
            served.extend(made.at_nodes(cx, &axis, transport, &by)?);
            vantages.extend(crossed(cx, &made, &axis, transport, &backend)?);
        }
        at_nodes.extend(listed_at_nodes(cx, &namespace, family, &backend).await?);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "its own frontends serve", cx.clients(), &served, within).await?;
    let what = "listed addresses serve the Service";
    write_effect::takes_effect(
        cx,
        Effect::Changed,
        what,
        &cx.clients().in_pods(),
        &at_nodes,
        within,
    )
    .await?;

    cx.phase("verdict: what is crossed serves no client, and the listeners answer, for the hold time");
    let vantages = frontends::joined(&vantages);
    frontends::settle_all(cx, &vantages, within).await?;
    let held = frontends::begin_all(cx, &vantages, cx.limits().hold).await?;
    frontends::hold_all(cx, held).await
}

/// A server on every node's host.
async fn listeners(cx: &Context, namespace: &str) -> Result<Vec<(String, Server)>, Halt> {
    let port = cx.host_port();
    let start = async |host: Client| {
        let name = format!("{}.{namespace}", host.node);
        let server = Server::start(cx, &host.place, &name, port).await?;
        Ok((host.node, server))
    };
    try_join_all(cx.clients().on_hosts().into_iter().map(start)).await
}

/// Each of them, at its node's address.
fn to_listeners(cx: &Context, listeners: &[(String, Server)]) -> Vec<Destination> {
    let mut targets = Vec::new();
    for family in cx.families() {
        for (node, address) in frontends::node_addresses(cx, family) {
            let axis = format!("{family}, listeners of hosts");
            let of_node = listeners.iter().filter(|(on, _)| *on == node);
            let each = of_node
                .flat_map(|(_, server)| TRANSPORTS.map(|transport| server.at(&axis, transport, address)));
            targets.extend(each);
        }
    }
    targets
}

/// Frontends that the Service does not have: its node port at its ClusterIP and at its backend's address, its port at the
/// nodes' addresses.
fn crossed(
    cx: &Context,
    made: &Frontends,
    axis: &str,
    transport: Transport,
    backend: &Backend,
) -> Result<Vec<Vantage>, Halt> {
    let node_port = made.node_port(transport)?;
    let none = |name: &str, address| Destination::none(axis, name, transport, address);
    let inside = vec![
        none("node port at the ClusterIP", (made.cluster_ip, node_port).into()),
        none(
            "node port at a pod",
            (backend.address(made.family)?, node_port).into(),
        ),
    ];
    let nodes = frontends::node_addresses(cx, made.family).into_iter();
    let at_nodes: Vec<Destination> = nodes
        .map(|(node, address)| none(&format!("Service port at {node}"), (address, PORT).into()))
        .collect();
    Ok(frontends::vantages(
        cx,
        [inside, at_nodes.clone()].concat(),
        at_nodes,
    ))
}

/// Services at the nodes' own addresses, as far as the target declares such: what they serve there.
async fn listed_at_nodes(
    cx: &Context,
    namespace: &str,
    family: Family,
    backend: &Backend,
) -> Result<Vec<Destination>, Halt> {
    let addresses: Vec<_> = frontends::node_addresses(cx, family)
        .into_iter()
        .map(|(_, address)| address)
        .collect();
    let mut targets = Vec::new();
    for (feature, port) in AT_NODES {
        let axis = format!("{family}, {feature} at nodes");
        if !cx.cluster().describe().features.contains(feature) {
            cx.axes()
                .not_enabled(&axis, "the target does not declare the feature");
            continue;
        }
        let made = create(cx, namespace, family, feature, port, backend).await?;
        if feature == "loadbalancer" {
            let ingress: Value = addresses.iter().map(|address| json!({ "ip": address })).collect();
            let status = json!({ "loadBalancer": { "ingress": ingress } });
            cx.objects().patch_status(&made.service, status).await?;
        }
        // They decide nothing by themselves: what they might break are the listeners.
        let axis = format!("{family}, listeners of hosts");
        for transport in TRANSPORTS {
            let by = identities([backend], transport, TARGET);
            let at = |address: &_| made.at(&axis, feature, transport, (*address, port).into(), &by);
            targets.extend(addresses.iter().map(at));
        }
    }
    Ok(targets)
}

/// A Service with a node port, or of a feature.
async fn create(
    cx: &Context,
    namespace: &str,
    family: Family,
    kind: &str,
    port: u16,
    backend: &Backend,
) -> Result<Frontends, Halt> {
    let addresses: Vec<_> = frontends::node_addresses(cx, family)
        .into_iter()
        .map(|(_, address)| address)
        .collect();
    let (of, class, external) = match kind {
        "loadbalancer" => ("LoadBalancer", json!(BY_HAND), Value::Null),
        "external-ips" => ("ClusterIP", Value::Null, json!(addresses)),
        _ => (kind, Value::Null, Value::Null),
    };
    let values = json!({
        "namespace": namespace, "service": format!("{kind}-{family}").to_lowercase(), "port": port,
        "type": of, "class": class, "external": external, "endpoints": endpoints([backend], family)?,
    });
    Frontends::create(cx, family, values).await
}
