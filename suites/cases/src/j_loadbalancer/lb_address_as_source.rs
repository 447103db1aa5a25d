//! `lb-address-as-source`: a client whose own address is listed in `status.loadBalancer.ingress`, and then in
//! `externalIPs`, is served through node ports of that Service and of another, under both external policies. Then the
//! status lists the nodes' own addresses, as where nodes are their own load balancers: each node's host is served
//! through node ports of the others whose policy is `Local`.
//!
//! Full proxies and health checkers dial like this (KEP-1860). A target that drops such packets as spoofed serves no
//! client outside meanwhile, so the case runs alone.
use std::{net::IpAddr, time::Duration};

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, Vantage},
    host_servers,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};
use oracle::history::Transport;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "lb-address-as-source",
    area: super::AREA,
    claims: &["lb-address-as-source"],
    sentence: "a client that dials from a load balancer address or from an external IP is served through node ports",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::HostNetwork],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("lb_address_as_source.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TARGET: u16 = 8080;
const LOCAL: &str = "Local";
/// Name, external policy and port of a Service, and whether it lists addresses.
const SERVICES: [(&str, &str, u16, bool); 4] = [
    ("lists", "Cluster", 8001, true),
    ("lists-local", LOCAL, 8002, true),
    ("other", "Cluster", 8003, false),
    ("other-local", LOCAL, 8004, false),
];
/// Fields that list addresses, in turn: the client's in the first two, the nodes' in the last.
const RUNS: [&str; 3] = ["status", "externalIPs", "status with nodes"];

struct Service {
    made: Frontends,
    policy: &'static str,
    port: u16,
    lists: bool,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services that will list addresses, and others");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let mut services = Vec::new();
    for family in cx.families() {
        for (name, policy, port, lists) in SERVICES {
            let values = json!({
                "namespace": namespace, "service": format!("{name}-{family}").to_lowercase(), "policy": policy,
                "port": port, "endpoints": endpoints(&backends, family)?,
            });
            let made = Frontends::create(cx, family, values).await?;
            services.push(Service {
                made,
                policy,
                port,
                lists,
            });
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for run in RUNS {
        for (clients, targets) in dialled(cx, &services, &backends, run)? {
            probing::control(cx, "node ports serve", &clients, &targets, within).await?;
        }
    }
    for run in RUNS {
        cx.phase(&format!(
            "{run}: addresses of clients are listed, and node ports must serve them"
        ));
        let mut listed = Vec::new();
        for service in services.iter().filter(|service| service.lists) {
            listed.extend(list(cx, service, &backends, run).await?);
        }
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;
        let (effect, what) = (Effect::Changed, "listed addresses serve the Service");
        write_effect::takes_effect(cx, effect, what, &cx.clients().in_pods(), &listed, within).await?;
        for (clients, targets) in dialled(cx, &services, &backends, run)? {
            probing::judge(cx, &clients, &targets, within).await?;
        }
    }
    Ok(())
}

/// Clients and the node ports that they dial: the client outside all of them, each node's host those of other nodes
/// with policy `Local`.
fn dialled(
    cx: &Context,
    services: &[Service],
    backends: &[Backend],
    run: &str,
) -> Result<Vec<Vantage>, Halt> {
    let all = node_ports(cx, services, backends, run)?;
    if run != RUNS[2] {
        return Ok(cx
            .clients()
            .outside()
            .map(|client| (vec![client], all))
            .into_iter()
            .collect());
    }
    let of = |host: Client| {
        let others = all
            .iter()
            .filter(|target| target.name.contains(LOCAL) && !target.name.ends_with(&host.node));
        let others = others.cloned().collect();
        (vec![host], others)
    };
    Ok(cx.clients().on_hosts().into_iter().map(of).collect())
}

/// Node ports of all Services on all nodes; with policy `Local` only on nodes that have a backend.
fn node_ports(
    cx: &Context,
    services: &[Service],
    backends: &[Backend],
    run: &str,
) -> Result<Vec<Destination>, Halt> {
    let mut targets = Vec::new();
    for Service { made, policy, .. } in services {
        let axis = format!("{}, {run}", made.family);
        for transport in [Transport::Tcp, Transport::Udp] {
            for (node, address) in frontends::node_addresses(cx, made.family) {
                let here = |backend: &&Backend| *policy != LOCAL || backend.node == node;
                let by = identities(backends.iter().filter(here), transport, TARGET);
                let address = (address, made.node_port(transport)?).into();
                let target = made.at(&axis, &format!("{policy} {node}"), transport, address, &by);
                targets.extend((!by.is_empty()).then_some(target));
            }
        }
    }
    Ok(targets)
}

/// Lists the addresses of a run in a Service, and in no other. Returns the frontends that pods get thereby.
async fn list(
    cx: &Context,
    service: &Service,
    backends: &[Backend],
    run: &str,
) -> Result<Vec<Destination>, Halt> {
    let (key, family) = (&service.made.service, service.made.family);
    let addresses: Vec<IpAddr> = match cx.clients().outside() {
        Some(client) if run != RUNS[2] => vec![host_servers::address_of(cx, &client, family).await?],
        _ => frontends::node_addresses(cx, family)
            .into_iter()
            .map(|(_, address)| address)
            .collect(),
    };
    let [external, ingress] = if run == RUNS[1] {
        [json!(addresses), Value::Null]
    } else {
        let each = |address: &IpAddr| json!({ "ip": address });
        [Value::Null, addresses.iter().map(each).collect()]
    };
    cx.objects()
        .patch(key, json!({ "spec": { "externalIPs": external } }))
        .await?;
    cx.objects()
        .patch_status(key, json!({ "loadBalancer": { "ingress": ingress } }))
        .await?;
    let (axis, by) = (
        format!("{family}, {run}"),
        identities(backends, Transport::Tcp, TARGET),
    );
    let at = |address| {
        service.made.at(
            &axis,
            "listed",
            Transport::Tcp,
            (address, service.port).into(),
            &by,
        )
    };
    Ok(addresses.into_iter().map(at).collect())
}
