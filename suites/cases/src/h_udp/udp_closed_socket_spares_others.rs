//! `udp-closed-socket-spares-others`: when a backend leaves a Service, unconnected sockets whose datagrams went to it,
//! sockets that are connected to another backend of it, and sockets that are connected to a Service that keeps the backend
//! go on without an error.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, frontends,
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;

use super::staging::{Frontend, Senders, Service, TARGET, Talk};

pub(crate) const CASE: Case = Case {
    id: "udp-closed-socket-spares-others",
    area: super::AREA,
    claims: &["udp-closed-socket-spares-others"],
    sentence: "when a backend leaves, unconnected UDP sockets and those that are connected elsewhere get no error",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Unconnected sockets of each client, those that are connected to the Service, and to one that keeps the backend.
const SOCKETS: [u32; 3] = [2, 6, 2];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: unconnected sockets that send to the backend that will leave");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["leaves", "stays"], &[], &[TARGET]).await?;
    let (leaves, stays) = all.split_at(1);
    let (mut services, mut keep) = (Vec::new(), Vec::new());
    for family in cx.families() {
        keep.push(Service::create(cx, family, (&namespace, "keeps"), &[], leaves).await?);
        services.push(Service::create(cx, family, (&namespace, "left"), &[], leaves).await?);
    }
    fence::pass(cx).await?;
    let within = Within::from_now(cx.limits().service);
    let cip = &[Frontend::ClusterIp];
    let (mut unconnected, mut elsewhere) = (Senders::none(), Senders::none());
    for (service, keeps) in services.iter().zip(&keep) {
        let dialled = service.dialled(cx, cip, Talk::Answered, ", unconnected").await?;
        unconnected = unconnected
            .and_served(cx, dialled, Talk::Answered, SOCKETS[0], leaves)
            .await?;
        let dialled = keeps
            .dialled(cx, cip, Talk::Connected, ", to a Service that keeps it")
            .await?;
        elsewhere = elsewhere
            .and_served(cx, dialled, Talk::Connected, SOCKETS[2], leaves)
            .await?;
    }
    for senders in [&unconnected, &elsewhere] {
        let served = senders.reaching(leaves);
        senders
            .flows()
            .control(cx, "the backend serves", &served, within)
            .await?;
    }

    cx.phase("another backend comes, and sockets are connected to both");
    for service in &services {
        service.list(cx, &all).await?;
    }
    fence::pass(cx).await?;
    let within = Within::from_now(cx.limits().endpoints);
    let mut connected = Senders::none();
    for service in &services {
        let dialled = service
            .dialled(cx, cip, Talk::Connected, ", to another backend")
            .await?;
        connected = connected.and(cx, dialled, Talk::Connected, SOCKETS[1]).await?;
    }
    let served = connected.reaching(&all);
    connected
        .flows()
        .control(cx, "both serve", &served, within)
        .await?;

    cx.phase("fault: the backend leaves; verdict: none of these sockets gets an error");
    for service in &services {
        service.list(cx, stays).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    let served = unconnected.reaching(stays);
    unconnected.flows().come_to(cx, &served, within).await?;
    let left = leaves[0].identity(Transport::Udp, TARGET);
    let none = Duration::ZERO;
    connected
        .into_flows(&all)
        .hold_those(cx, none, |by| by != left)
        .await?;
    elsewhere.into_flows(leaves).hold(cx, none).await?;
    unconnected.into_flows(&all).hold(cx, none).await.map(drop)
}
