//! `lb-vip-served`, `external-ip-served`, `lb-without-nodeports`: an address that no machine has, listed as that of a
//! load balancer or as an external IP, is served from outside routed to any node, and from pods and hosts of every node.
//! The only backend is on one of them. A load balancer's Service without node ports is served all the same, and gets a
//! health check node port where its external policy is `Local`.
use std::time::Duration;

use cluster::{Capability, Family};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, WRITTEN_BY_HAND},
    health_checks,
    pods::{Backend, endpoints},
    probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::health::Health;
use serde_json::{Value, json};

use super::vips;

pub(crate) const CASE: Case = Case {
    id: "lb-vip-served",
    area: super::AREA,
    claims: &["lb-vip-served"],
    sentence: "a load balancer address that no machine has is served from outside through any node, and from inside",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::SecondNetwork],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("lb_vip_served.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(served(cx, Kind::Balancer)),
};
pub(crate) const EXTERNAL_IP: Case = Case {
    id: "external-ip-served",
    claims: &["external-ip-served"],
    sentence: "an external IP that no machine has is served from outside through any node, and from inside",
    features: &["external-ips"],
    run: |cx| Box::pin(served(cx, Kind::ExternalIp)),
    ..CASE
};
pub(crate) const WITHOUT_NODE_PORTS: Case = Case {
    id: "lb-without-nodeports",
    claims: &["lb-without-nodeports"],
    sentence: "a load balancer address is served without node ports, and health checks of policy Local are answered",
    needs: Needs {
        nodes: 1,
        ..CASE.needs
    },
    run: |cx| Box::pin(served(cx, Kind::WithoutNodePorts)),
    ..CASE
};

const TARGET: u16 = 8080;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Balancer,
    ExternalIp,
    WithoutNodePorts,
}

impl Kind {
    /// Number of the address, and names of the Services with their external policies.
    fn services(self) -> &'static [(u8, &'static str, &'static str)] {
        match self {
            Self::Balancer => &[(10, "balanced", "Cluster")],
            Self::ExternalIp => &[(11, "external", "Cluster")],
            Self::WithoutNodePorts => &[(12, "bare", "Cluster"), (13, "bare-local", "Local")],
        }
    }
}

struct Served {
    family: Family,
    policy: &'static str,
    object: Value,
    targets: Vec<Destination>,
}

async fn served(cx: &Context, kind: Kind) -> Result<(), Halt> {
    cx.phase("staging: Services of a backend on the first node");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let mut all = Vec::new();
    for family in cx.families() {
        for service in kind.services() {
            all.push(stage(cx, &namespace, family, kind, *service, &backends).await?);
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: pods and hosts of every node are served");
    let inside: Vec<Destination> = all.iter().flat_map(|one| one.targets.clone()).collect();
    probing::judge(cx, cx.clients(), &inside, within).await?;
    let outside: Vec<Client> = cx.clients().outside().into_iter().collect();
    for node in cx.nodes() {
        cx.phase(&format!("verdict: the client outside is served through {node}"));
        let mut through = Vec::new();
        // With policy Local, nodes without a backend do not serve.
        let dialled = |one: &&Served| one.policy != "Local" || node == backends[0].node;
        for one in all.iter().filter(dialled) {
            let vips: Vec<_> = one.targets.iter().map(|target| target.address.ip()).collect();
            vips::route(cx, one.family, &vips[..1], &node, None).await?;
            through.extend(one.targets.iter().map(|target| Destination {
                axis: format!("{}, from outside through {node}", target.axis),
                ..target.clone()
            }));
        }
        probing::judge(cx, &outside, &through, within).await?;
    }
    let mut checks = Vec::new();
    for one in all.iter().filter(|one| one.policy == "Local") {
        let axis = format!("{}, health check", one.family);
        for check in health_checks::at_nodes(cx, &axis, &one.object, one.family)? {
            let is_here = check.node == backends[0].node;
            checks.push((check, if is_here { Health::Ok } else { Health::Unavailable }));
        }
    }
    for client in &outside {
        health_checks::judge(cx, client, &checks, within).await?;
    }
    Ok(())
}

/// A Service whose address is that of a number. Only a load balancer's has an external policy of its own.
async fn stage(
    cx: &Context,
    namespace: &str,
    family: Family,
    kind: Kind,
    (number, name, policy): (u8, &str, &'static str),
    backends: &[Backend],
) -> Result<Served, Halt> {
    let (vip, is_external) = (vips::vip(family, number), kind == Kind::ExternalIp);
    let service = format!("{name}-{family}").to_lowercase();
    let values = json!({
        "namespace": namespace, "service": service, "policy": policy, "endpoints": endpoints(backends, family)?,
        "type": if is_external { "ClusterIP" } else { "LoadBalancer" },
        "class": (!is_external).then_some(WRITTEN_BY_HAND),
        "node-ports": (!is_external).then_some(kind == Kind::Balancer),
        "external": is_external.then_some([vip]),
    });
    let made = Frontends::create(cx, family, values).await?;
    if kind != Kind::Balancer && !made.node_ports().is_empty() {
        let found = made.node_ports();
        return Err(Halt::Harness(format!(
            "expected no node port of {service}, found {found:?}"
        )));
    }
    let mut object = made.object().clone();
    if !is_external {
        object = frontends::give_balancers(cx, &made.service, &[vip]).await?.object;
    }
    let axis = format!("{family}, policy {policy}");
    let leads = frontends::leading_to(cx, &object, family).into_iter();
    let at_vip = leads.filter(|one| one.address.ip() == vip);
    Ok(Served {
        family,
        policy,
        targets: at_vip.map(|one| one.serves(&axis, backends)).collect(),
        object,
    })
}
