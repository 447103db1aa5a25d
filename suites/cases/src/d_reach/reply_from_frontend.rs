//! `reply-from-frontend`: an unconnected UDP client gets the reply from exactly the address and port that it sent to.
//! Each of its sockets sends to two Services that share a backend, by turns and one request at a time, through every
//! frontend.
//!
//! No socket is connected: a connected one drops replies from a wrong source unseen. There are enough sockets to evict
//! stored state of sockets where that can happen. What connected sockets show is recorded, and judged where the target
//! claims it.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, Vantage},
    lasting_sockets::{self, Sockets, Which},
    pods::endpoints,
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{history::Transport, peer::Shows};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "reply-from-frontend",
    area: super::AREA,
    claims: &["reply-from-frontend"],
    sentence: "an unconnected socket gets each answer from the frontend that it sent to, with two Services of one backend by turns",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("reply_from_frontend.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(replies(cx, "NodePort")),
};
pub(crate) const LB: Case = Case {
    id: "reply-from-frontend-lb",
    sentence: "an unconnected socket gets each answer from the load balancer address that it sent to",
    features: &["loadbalancer"],
    needs: Needs {
        also: &[Capability::LoadBalancerAddresses],
        ..CASE.needs
    },
    run: |cx| Box::pin(replies(cx, "LoadBalancer")),
    ..CASE
};
pub(crate) const PEERNAME: Case = Case {
    id: "reply-from-frontend-peername",
    sentence: "connected sockets show the frontend that they dialled as their peer",
    features: &["peername"],
    run: |cx| Box::pin(peernames(cx)),
    ..CASE
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// Sockets of each client, and requests of each of them to each frontend.
const SOCKETS: u32 = 1000;
const TURNS: u32 = 2;

async fn replies(cx: &Context, kind: &str) -> Result<(), Halt> {
    let dialled = stage(cx, kind, &[Transport::Udp, Transport::Tcp]).await?;
    cx.phase("verdict: each answer comes from the frontend that the request was sent to");
    for (clients, targets) in dialled {
        let (datagrams, connections): (Vec<Destination>, Vec<Destination>) = targets
            .into_iter()
            .partition(|target| target.transport == Transport::Udp);
        for client in &clients {
            let attempts = probing::probe_briefly(cx, client, &connections).await?;
            lasting_sockets::record_peers(cx, &client.name, &attempts);
        }
        let mut sockets = Sockets::keep(cx, &clients).await?;
        for target in (0..TURNS).flat_map(|_| &datagrams) {
            if cx.axes().is_open(&target.axis) {
                let all = Which::Oldest(SOCKETS);
                let (_, findings) = sockets
                    .exchange(cx, target, all, Shows::FrontendOrBackend)
                    .await?;
                cx.axes().judged(&target.axis, findings);
            }
        }
    }
    Ok(())
}

async fn peernames(cx: &Context) -> Result<(), Halt> {
    let dialled = stage(cx, "NodePort", &[Transport::Tcp, Transport::UdpConnected]).await?;
    cx.phase("verdict: connected sockets show the frontend");
    let within = Within::from_now(cx.limits().service);
    for (clients, targets) in &dialled {
        let attempts = probing::judge(cx, clients, targets, within).await?;
        lasting_sockets::judge_peers(cx, clients, targets, &attempts, Shows::Frontend);
    }
    Ok(())
}

/// Two Services of each family, and the frontends of one and of the other by turns; all of them serve.
async fn stage(cx: &Context, kind: &str, transports: &[Transport]) -> Result<Vec<Vantage>, Halt> {
    cx.phase("staging: two Services of one backend");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let mut dialled = Vec::new();
    for family in cx.families() {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for name in ["one", "two"] {
            let service = format!("{name}-{family}").to_lowercase();
            let endpoints = endpoints(&backends, family)?;
            let values =
                json!({ "namespace": namespace, "service": service, "type": kind, "endpoints": endpoints });
            let made = Frontends::create(cx, family, values).await?;
            for &transport in transports {
                let by = identities(&backends, transport, TARGET);
                let axis = |kind: &str| format!("{family}, {kind}");
                if kind == "LoadBalancer" {
                    outside.extend(made.at_balancers(cx, &axis("lb"), transport, PORT, &by).await?);
                } else {
                    inside.push(made.at_cluster_ip(&axis("cip"), transport, PORT, &by));
                    outside.extend(made.at_nodes(cx, &axis("np"), transport, &by)?);
                }
            }
        }
        // In this order, each is followed by another Service's.
        outside.sort_by_key(|target| target.address.ip());
        inside.extend(outside.clone());
        dialled.extend(frontends::vantages(cx, inside, outside));
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in &dialled {
        probing::control(cx, "every frontend serves", clients, targets, within).await?;
    }
    Ok(dialled)
}
