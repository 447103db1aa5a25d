//! `backend-port-closed-visible`: a TCP client of ClusterIP and node port gets ECONNREFUSED within 1 s where the listed
//! endpoint's port is closed. `backend-port-closed-visible-udp`: so does a connected UDP client of the ClusterIP, by an
//! ICMP error whose embedded packet has been translated back.
//!
//! The endpoint is alive: another port of it serves through the same Service, and dialled directly it gives the same
//! error.
use std::time::Duration;

use harness::{
    background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, Vantage, permitting},
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{
    check::Permitted,
    history::{Attempt, Outcome, Transport},
};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "backend-port-closed-visible",
    area: super::AREA,
    claims: &["backend-port-closed-visible"],
    sentence: "a TCP client gets ECONNREFUSED within 1 s where the port of the endpoint is closed",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("backend_port_closed_visible.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(connections(cx)),
};
pub(crate) const UDP: Case = Case {
    id: "backend-port-closed-visible-udp",
    sentence: "a connected UDP client gets ECONNREFUSED within 1 s where the port of the endpoint is closed",
    features: &["icmp-errors"],
    run: |cx| Box::pin(datagrams(cx)),
    ..CASE
};

const PORT: u16 = 7480;
const OPEN: u16 = 7481;
const TARGET: u16 = 8080;
const CLOSED: u16 = 8081;
const ERROR: &str = "ECONNREFUSED";

/// Who dials which frontend of the closed port, and that port of the endpoint itself.
struct Staged {
    dialled: Vec<Vantage>,
    direct: Vec<Destination>,
}

async fn connections(cx: &Context) -> Result<(), Halt> {
    let staged = stage(cx, Transport::Tcp).await?;
    cx.phase("control: dialled directly, the port is closed");
    let within = Within::from_now(cx.limits().endpoints);
    let what = "the endpoint itself refuses";
    probing::control(cx, what, cx.clients(), &staged.direct, within).await?;

    cx.phase("verdict: clients of the Service are told so");
    let within = Within::from_now(cx.limits().endpoints);
    for (clients, targets) in &staged.dialled {
        let attempts = probing::judge(cx, clients, targets, within).await?;
        probing::judge_error(cx, clients, targets, &attempts, ERROR);
    }
    Ok(())
}

async fn datagrams(cx: &Context) -> Result<(), Halt> {
    let staged = stage(cx, Transport::UdpConnected).await?;
    cx.phase("control: dialled directly, the port is closed");
    for client in cx.clients().iter() {
        // A kernel sends one client an ICMP error in a second, and six at once (`icmp_ratelimit`).
        let attempts = probing::probe_once(cx, client, &staged.direct).await?;
        let is_told =
            |attempt: &Attempt| matches!(&attempt.outcome, Outcome::Failed { errno, .. } if errno == ERROR);
        for (target, attempt) in staged.direct.iter().zip(&attempts) {
            if !is_told(attempt) {
                let why = format!(
                    "control failed (the endpoint itself refuses): {:?}",
                    attempt.outcome
                );
                cx.axes().inconclusive(&target.axis, why, Vec::new());
            }
        }
    }

    cx.phase("verdict: clients of the Service are told so");
    let fewest = u32::try_from(staged.direct.first().map_or(1, Destination::fewest)).unwrap_or(1);
    let window = cx.limits().hold.max(cx.limits().hold_probe * fewest);
    let inside = staged.dialled.into_iter().take(1);
    for (clients, targets) in inside {
        let attempts = background::hold_steadily(cx, &clients, &targets, window).await?;
        probing::judge_error(cx, &clients, &targets, &attempts, ERROR);
    }
    Ok(())
}

/// A Service of each family with an endpoint that serves one port and not the other; the first serves through it.
async fn stage(cx: &Context, transport: Transport) -> Result<Staged, Halt> {
    cx.phase("staging: a Service that lists a closed port");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let (mut inside, mut outside, mut direct, mut open) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for family in cx.families() {
        let service = format!("ajar-{family}").to_lowercase();
        let endpoints = endpoints(&backends, family)?;
        let values = json!({ "namespace": namespace, "service": service, "endpoints": endpoints });
        let made = Frontends::create(cx, family, values).await?;
        let [cip, np] = ["cip", "np"].map(|kind| format!("{family}, {kind}"));
        let by = identities(&backends, Transport::Tcp, TARGET);
        let closed = |backend: &Backend, axis: &str| {
            let at = (backend.address(family)?, CLOSED).into();
            Ok::<_, Halt>(made.at(axis, "endpoint", transport, at, &by))
        };
        let mut axes = vec![&cip];
        inside.push(made.at_cluster_ip(&cip, transport, PORT, &by));
        if transport == Transport::Tcp {
            axes.push(&np);
            outside.extend(made.at_nodes(cx, &np, transport, &by)?);
        }
        for axis in axes {
            direct.push(closed(&backends[0], axis)?);
            open.push(made.at_cluster_ip(axis, Transport::Tcp, OPEN, &by));
        }
    }
    inside.extend(outside.clone());
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let what = "another port of the endpoint serves";
    probing::control(cx, what, cx.clients(), &open, within).await?;
    let [inside, outside, direct] =
        [inside, outside, direct].map(|targets| permitting(&targets, &Permitted::Refuse));
    Ok(Staged {
        dialled: frontends::vantages(cx, inside, outside),
        direct,
    })
}
