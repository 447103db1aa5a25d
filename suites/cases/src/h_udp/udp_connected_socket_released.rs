//! `udp-connected-socket-released`: connected UDP sockets, in pods and on hosts, whose backend leaves while another serves:
//! within the endpoint propagation limit each is served by the other, or gets an error and is served when it is opened
//! again. Datagrams that are lost without an error fail the claim, and so does what still reaches the old backend, which
//! stays alive and is kept by another Service.
//!
//! The sockets have been connected for the hold time when the backend leaves.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, frontends,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{Frontend, Senders, Service, TARGET, Talk};

pub(crate) const CASE: Case = Case {
    id: "udp-connected-socket-released",
    area: super::AREA,
    claims: &["udp-connected-socket-released"],
    sentence: "connected UDP sockets whose backend leaves reach another one, or get an error",
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
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Sockets of each client.
const SOCKETS: u32 = 4;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with one of two backends, and sockets that are connected to it");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["old", "stays"], &[], &[TARGET]).await?;
    let (old, stays) = all.split_at(1);
    let mut services = Vec::new();
    for family in cx.families() {
        Service::create(cx, family, (&namespace, "keeps"), &[], old).await?;
        services.push(Service::create(cx, family, (&namespace, "connected"), &[], old).await?);
    }
    fence::pass(cx).await?;
    let mut senders = Senders::none();
    for service in &services {
        let dialled = service.dialled(cx, &[Frontend::ClusterIp], Talk::Connected, "");
        senders = senders.and(cx, dialled.await?, Talk::Connected, SOCKETS).await?;
    }
    let (flows, within) = (senders.flows(), Within::from_now(cx.limits().service));
    flows
        .control(cx, "the backend serves", &senders.reaching(old), within)
        .await?;

    cx.phase("another backend comes, and the sockets stay where they are");
    for service in &services {
        service.list(cx, &all).await?;
    }
    fence::pass(cx).await?;
    let within = Within::from_now(cx.limits().endpoints);
    flows.come_to(cx, &senders.reaching(old), within).await?;

    cx.phase("fault: the backend leaves; verdict: the sockets reach the other one");
    for service in &services {
        service.list(cx, stays).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    flows.come_to(cx, &senders.reaching(stays), within).await
}
