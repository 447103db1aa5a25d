//! `service-deleted-vip-dead`: within the Service propagation limit of its deletion, no frontend of a Service reaches a
//! backend, though its backends live. A second Service of the same backends proves that they do, and never fails.
//!
//! One Service is deleted alone, and its EndpointSlice stays: what ends with its endpoints would hide a deletion that
//! was missed. Of another the EndpointSlice goes too, as a garbage collector deletes it. Deleted Services have node
//! ports that API servers do not hand out by themselves (KEP-3668): no other Service gets them meanwhile.
use std::{net::IpAddr, time::Duration};

use cluster::{Capability, Family};
use futures::future::try_join_all;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontends::{self, Frontend, Frontends, WRITTEN_BY_HAND},
    names::Key,
    pods::{Backend, endpoints},
    probing,
    verdict::Halt,
    waiting::Within,
};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "service-deleted-vip-dead",
    area: super::AREA,
    claims: &["service-deleted-vip-dead"],
    sentence: "a deleted Service is served no more while its backends live, and others of the same backends never fail",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service_deleted_vip_dead.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(deleted(cx, "NodePort")),
};
pub(crate) const LB: Case = Case {
    id: "service-deleted-vip-dead-lb",
    sentence: "a deleted Service is served no more at its load balancer address and external IP, where others go on",
    features: &["loadbalancer", "external-ips"],
    needs: Needs {
        also: &[Capability::LoadBalancerAddresses],
        ..CASE.needs
    },
    run: |cx| Box::pin(deleted(cx, BALANCER)),
    ..CASE
};

const TARGET: u16 = 8080;
/// The first node ports of Services that are deleted, by their type: no other case has these.
const NODE_PORTS: [(&str, u16); 2] = [("NodePort", 30_040), (BALANCER, 30_044)];
const BALANCER: &str = "LoadBalancer";
/// What is deleted, and the Service's port.
const DELETED: [(&str, u16); 2] = [("the Service alone", 7480), (WITH_SLICE, 7482)];
const WITH_SLICE: &str = "with its EndpointSlice";
/// Port of the Service that stays.
const STAYS: u16 = 7481;

struct Deleted {
    service: Key,
    /// That of its EndpointSlice, which is deleted too.
    slice: Option<Key>,
    leads: Vec<(String, Frontend)>,
}

async fn deleted(cx: &Context, kind: &str) -> Result<(), Halt> {
    cx.phase("staging: Services of the same backends, of which one per family stays");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let (mut gone, mut stays) = (Vec::new(), Vec::new());
    let mut node_ports = NODE_PORTS
        .into_iter()
        .filter(|(of, _)| *of == kind)
        .flat_map(|(_, first)| first..first + 4);
    for family in cx.families() {
        let addresses = addresses(cx, &namespace, family, kind).await?;
        let make = async |name: &str, port: u16, node_port: Option<u16>| {
            let service = format!("{name}-{family}").to_lowercase();
            let (balancers, external) = addresses.split_at(addresses.len() / 2);
            let values = values(&namespace, &service, kind, port, node_port, external);
            create(cx, family, values, &backends, balancers).await
        };
        let axis = format!("{family}, the Service that stays");
        let (_, leads) = make("stays", STAYS, None).await?;
        stays.extend(leads.into_iter().map(|one| (axis.clone(), one)));
        for (at, (what, port)) in DELETED.into_iter().enumerate() {
            let (service, leads) = make(&format!("gone{at}"), port, node_ports.next()).await?;
            let axis = format!("{family}, {what}");
            gone.push(Deleted {
                slice: (what == WITH_SLICE).then(|| Key::slice(&namespace, &service.name)),
                service,
                leads: leads.into_iter().map(|one| (axis.clone(), one)).collect(),
            });
        }
    }
    let leads: Vec<(String, Frontend)> = gone.iter().flat_map(|one| one.leads.clone()).collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let serves = |axis: &str, one: &Frontend| one.serves(axis, &backends);
    for (clients, targets) in frontends::dialled(cx, &[&*leads, &*stays].concat(), serves) {
        probing::control(cx, "every frontend serves", &clients, &targets, within).await?;
    }

    cx.phase("fault: Services are deleted, under probes of those that stay");
    let mut windows = Vec::new();
    for (clients, targets) in frontends::dialled(cx, &stays, serves) {
        windows.push(Background::start(cx, &clients, &targets, cx.limits().hold).await?);
    }
    for one in &gone {
        cx.objects().delete(&one.service).await?;
        if let Some(slice) = &one.slice {
            cx.objects().delete(slice).await?;
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: deleted Services reach no backend, for the hold time; the others never fail");
    let dead = frontends::dialled(cx, &leads, |axis, one| one.none(axis));
    for (clients, targets) in &dead {
        probing::judge(cx, clients, targets, within).await?;
    }
    for (clients, targets) in &dead {
        windows.push(Background::steadily(cx, clients, targets, cx.limits().hold).await?);
    }
    try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;
    Ok(())
}

/// With load balancers, an address for them and one for external IPs, both routed to nodes.
async fn addresses(cx: &Context, namespace: &str, family: Family, kind: &str) -> Result<Vec<IpAddr>, Halt> {
    let mut addresses = Vec::new();
    for at in ["lb", "eip"] {
        if kind == BALANCER {
            let holder = format!("{at}-{family}").to_lowercase();
            let given = frontends::assigned_balancers(cx, namespace, family, &holder).await?;
            addresses.extend(given.first());
        }
    }
    Ok(addresses)
}

fn values(
    namespace: &str,
    service: &str,
    kind: &str,
    port: u16,
    node_port: Option<u16>,
    external: &[IpAddr],
) -> Value {
    json!({
        "namespace": namespace, "service": service, "type": kind, "port": port, "node-port": node_port,
        "class": (kind == BALANCER).then_some(WRITTEN_BY_HAND), "external": external,
    })
}

/// A Service of these backends with these load balancer addresses, and all that leads to it.
async fn create(
    cx: &Context,
    family: Family,
    mut values: Value,
    backends: &[Backend],
    balancers: &[IpAddr],
) -> Result<(Key, Vec<Frontend>), Halt> {
    values["endpoints"] = endpoints(backends, family)?;
    let made = Frontends::create(cx, family, values).await?;
    let mut object = made.object().clone();
    if !balancers.is_empty() {
        object = frontends::give_balancers(cx, &made.service, balancers)
            .await?
            .object;
    }
    Ok((made.service, frontends::leading_to(cx, &object, family)))
}
