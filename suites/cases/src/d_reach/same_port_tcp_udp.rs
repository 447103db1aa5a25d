//! `same-port-tcp-udp`: TCP and UDP on one port number of a Service, and one node port number, reach their own backends.
//! Then one of the ports is removed: the other one never fails, and what was removed serves no more.
//!
//! Each backend serves both protocols, with an identity for each: a merged key shows as the wrong backend. Which protocol
//! is removed is an axis.
use std::time::Duration;

use cluster::{Capability, Family};
use futures::try_join;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, Vantage, permitting},
    pods::{Backend, endpoints},
    probing::identities,
    verdict::Halt,
    waiting::Within,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "same-port-tcp-udp",
    area: super::AREA,
    claims: &["same-port-tcp-udp"],
    sentence: "TCP and UDP on one port number reach their own backends, and removing one leaves the other",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("same_port_tcp_udp.yaml"),
    longest: Duration::from_secs(360),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, "NodePort")),
};
pub(crate) const LB: Case = Case {
    id: "same-port-tcp-udp-lb",
    sentence: "TCP and UDP on one port number of a load balancer's address reach their own backends",
    features: &["mixed-protocol"],
    needs: Needs {
        also: &[Capability::LoadBalancerAddresses],
        ..CASE.needs
    },
    run: |cx| Box::pin(run(cx, "LoadBalancer")),
    ..CASE
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const PROTOCOLS: [&str; 2] = ["TCP", "UDP"];

/// A Service, and what its clients dial: of the protocol that stays, and of that which goes.
struct Staged {
    made: Frontends,
    removed: &'static str,
    stays: Vec<Vantage>,
    goes: Vec<Vantage>,
}

async fn run(cx: &Context, kind: &str) -> Result<(), Halt> {
    cx.phase("staging: Services with one number for both protocols");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["t", "u"], &[TARGET], &[TARGET]).await?;
    let removals = cx
        .axes()
        .choose(PROTOCOLS.to_vec(), |removed| (*removed).to_owned());
    let mut staged = Vec::new();
    for family in cx.families() {
        for removed in &removals {
            staged.push(stage(cx, &namespace, kind, family, removed, &backends).await?);
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let all = |of: fn(&Staged) -> &[Vantage]| frontends::joined(staged.iter().flat_map(of));
    let (stay, go) = (all(|one| &one.stays), all(|one| &one.goes));

    cx.phase("verdict: each protocol reaches its own backend");
    // N probes of each protocol follow, where the other one is removed.
    let both = frontends::joined(stay.iter().chain(&go));
    frontends::judge_all_briefly(cx, &both, within).await?;

    cx.phase("verdict: one protocol is removed, and the other never fails");
    let hold = cx.limits().hold;
    let stay = frontends::begin_all(cx, &stay, hold).await?;
    for one in &staged {
        let ports: Vec<_> = PROTOCOLS
            .iter()
            .zip(one.made.node_ports())
            .filter(|(protocol, _)| **protocol != one.removed)
            .map(|(protocol, node_port)| {
                let name = protocol.to_lowercase();
                json!({ "name": name, "port": PORT, "protocol": protocol, "nodePort": node_port })
            })
            .collect();
        let remaining = json!({ "spec": { "ports": ports } });
        cx.objects().patch(&one.made.service, remaining).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let gone: Vec<Vantage> = go
        .iter()
        .map(|(clients, targets)| (clients.clone(), permitting(targets, &Permitted::None)))
        .collect();
    frontends::settle_all(cx, &gone, within).await?;
    let gone = frontends::begin_all(cx, &gone, hold).await?;
    try_join!(frontends::hold_all(cx, gone), frontends::hold_all(cx, stay))?;
    Ok(())
}

async fn stage(
    cx: &Context,
    namespace: &str,
    kind: &str,
    family: Family,
    removed: &'static str,
    backends: &[Backend],
) -> Result<Staged, Halt> {
    let axis = format!("{family}, {removed} removed");
    let values = json!({
        "namespace": namespace, "service": format!("no-{removed}-{family}").to_lowercase(), "type": kind,
        "family": family.to_string(), "tcp": endpoints(&backends[..1], family)?, "udp": endpoints(&backends[1..], family)?,
    });
    let made = Frontends::create(cx, family, values.clone()).await?;
    for slice in ["${service}-tcp", "${service}-udp"] {
        cx.apply(slice, &values).await?;
    }
    let [mut stays, mut goes] = [Vec::new(), Vec::new()];
    for (protocol, backend, transport) in [
        ("TCP", &backends[0], Transport::Tcp),
        ("UDP", &backends[1], Transport::Udp),
        ("UDP", &backends[1], Transport::UdpConnected),
    ] {
        let by = identities([backend], transport, TARGET);
        let cluster_ip = made.at_cluster_ip(&axis, transport, PORT, &by);
        let mut outside: Vec<Destination> = made.at_nodes(cx, &axis, transport, &by)?;
        if kind == "LoadBalancer" {
            outside = made.at_balancers(cx, &axis, transport, PORT, &by).await?;
        }
        let inside = [vec![cluster_ip], outside.clone()].concat();
        let of = if protocol == removed {
            &mut goes
        } else {
            &mut stays
        };
        of.extend(frontends::vantages(cx, inside, outside));
    }
    Ok(Staged {
        made,
        removed,
        stays,
        goes,
    })
}
