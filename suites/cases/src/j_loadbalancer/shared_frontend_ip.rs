//! `shared-frontend-ip`: two Services on one load balancer address, or on one external IP, with different ports or with
//! one port of different protocols, are served apart. One of them is deleted, the older or the younger: the other one
//! never fails, and nothing reaches a backend at the former's port, nor, before and after, at a port that neither has.
use std::{net::IpAddr, time::Duration};

use cluster::{Capability, Family};
use futures::future::try_join_all;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontend, Frontends, WRITTEN_BY_HAND},
    names::Key,
    pods::{Backend, endpoints},
    probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

use super::vips;

pub(crate) const CASE: Case = Case {
    id: "shared-frontend-ip",
    area: super::AREA,
    claims: &["shared-frontend-ip"],
    sentence: "two Services on one load balancer address are served apart, and one outlives the other",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::SecondNetwork],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("shared_frontend_ip.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(shared(cx, BALANCER, 16)),
};
pub(crate) const EXTERNAL_IP: Case = Case {
    id: "shared-frontend-ip-external",
    sentence: "two Services on one external IP are served apart, and one outlives the other",
    features: &["loadbalancer", "external-ips"],
    run: |cx| Box::pin(shared(cx, "ClusterIP", 20)),
    ..CASE
};

const TARGET: u16 = 8080;
const PORT: u16 = 7480;
/// A port that no Service has at these addresses.
const CLOSED: u16 = 7499;
const BALANCER: &str = "LoadBalancer";
/// What two Services differ in, and ports of each.
type Apart = (&'static str, [&'static [(&'static str, u16)]; 2]);
const APART: [Apart; 2] = [
    (
        "ports",
        [
            &[("TCP", PORT), ("UDP", PORT)],
            &[("TCP", PORT + 1), ("UDP", PORT + 1)],
        ],
    ),
    ("protocols", [&[("TCP", PORT)], &[("UDP", PORT)]]),
];
/// Which of the two is deleted.
const DELETED: [&str; 2] = ["older", "younger"];

/// Two Services on one address, by age; which is deleted, and what leads to each there.
struct Pair {
    axis: String,
    deleted: usize,
    services: Vec<Key>,
    leads: Vec<Vec<Frontend>>,
    vip: IpAddr,
}

/// Services of a type, at addresses of which the first has this number: no other case has those of a block of four.
async fn shared(cx: &Context, kind: &str, first: u8) -> Result<(), Halt> {
    cx.phase("staging: pairs of Services on one address");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let mut pairs = Vec::new();
    for family in cx.families() {
        let points = APART
            .iter()
            .flat_map(|apart| [0, 1].map(|deleted| (kind, *apart, deleted)));
        for (number, point) in (first..).zip(points) {
            pairs.push(Pair::stage(cx, &namespace, family, number, point, &backends).await?);
        }
        let vips: Vec<IpAddr> = pairs
            .iter()
            .map(|pair| pair.vip)
            .filter(|vip| family.has(vip))
            .collect();
        vips::route(cx, family, &vips, &cx.nodes()[0], None).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let serves = |of: &dyn Fn(&Pair) -> Vec<usize>| -> Vec<(String, Frontend, usize)> {
        let each = pairs.iter().flat_map(|pair| {
            let which = of(pair).into_iter();
            which.flat_map(move |at| {
                pair.leads[at]
                    .iter()
                    .map(move |one| (pair.axis.clone(), one.clone(), at))
            })
        });
        each.collect()
    };
    let targets = |of: Vec<(String, Frontend, usize)>| -> Vec<Destination> {
        let each = |(axis, one, at): &(String, Frontend, usize)| one.serves(axis, &backends[*at..=*at]);
        of.iter().map(each).collect()
    };
    let (both, stay) = (
        targets(serves(&|_| vec![0, 1])),
        targets(serves(&|pair| vec![1 - pair.deleted])),
    );
    let clients: Vec<_> = cx
        .clients()
        .outside()
        .into_iter()
        .chain(cx.clients().to_vec())
        .collect();
    let closed: Vec<Destination> = pairs.iter().flat_map(Pair::closed).collect();
    probing::judge(cx, &clients, &both, within).await?;

    cx.phase("fault: one of each pair is deleted, under probes of the other one");
    let hold = cx.limits().hold;
    let mut windows = vec![
        Background::start(cx, &clients, &stay, hold).await?,
        Background::steadily(cx, &clients, &closed, hold).await?,
    ];
    for pair in &pairs {
        cx.objects().delete(&pair.services[pair.deleted]).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: nothing is delivered at its ports for the hold time, and the other one never fails");
    let gone = serves(&|pair| vec![pair.deleted]);
    let gone: Vec<Destination> = gone.iter().map(|(axis, one, _)| one.none(axis)).collect();
    probing::judge(cx, &clients, &gone, within).await?;
    windows.push(Background::steadily(cx, &clients, &gone, hold).await?);
    try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;
    Ok(())
}

impl Pair {
    async fn stage(
        cx: &Context,
        namespace: &str,
        family: Family,
        number: u8,
        (kind, (what, ports), deleted): (&str, Apart, usize),
        backends: &[Backend],
    ) -> Result<Self, Halt> {
        let vip = vips::vip(family, number);
        let is_balancer = kind == BALANCER;
        let (mut services, mut leads) = (Vec::new(), Vec::new());
        for (age, (ports, backend)) in DELETED.iter().zip(ports.iter().zip(backends)) {
            let service = format!("{age}{number}-{family}").to_lowercase();
            let values = json!({
                "namespace": namespace, "service": service, "ports": listed(ports), "type": kind,
                "class": is_balancer.then_some(WRITTEN_BY_HAND), "external": (!is_balancer).then_some([vip]),
                "endpoints": endpoints([backend], family)?,
            });
            let made = Frontends::create(cx, family, values).await?;
            let mut object = made.object().clone();
            if is_balancer {
                object = frontends::give_balancers(cx, &made.service, &[vip]).await?.object;
            }
            let all = frontends::leading_to(cx, &object, family).into_iter();
            leads.push(all.filter(|one| one.address.ip() == vip).collect());
            services.push(made.service);
        }
        let axis = format!("{family}, other {what}, the {} is deleted", DELETED[deleted]);
        Ok(Self {
            axis,
            deleted,
            services,
            leads,
            vip,
        })
    }

    /// A port that neither Service has.
    fn closed(&self) -> [Destination; 2] {
        [Transport::Tcp, Transport::Udp].map(|transport| {
            Destination::none(&self.axis, "closed port", transport, (self.vip, CLOSED).into())
        })
    }
}

fn listed(ports: &[(&str, u16)]) -> Vec<Value> {
    let each = |(protocol, port): &(&str, u16)| json!({ "name": protocol.to_lowercase(), "protocol": protocol, "port": port, "targetPort": TARGET });
    ports.iter().map(each).collect()
}
