//! `udp-zero-and-back`: sockets that send once a second, each from one port, while their Service goes from one endpoint to
//! none and to another one. Without an endpoint nothing reaches the old one after the endpoint propagation limit; with
//! the new one, all reach that within the limit. A second set of sockets asks for no answers.
//!
//! The old backend stays alive, and another Service keeps it: an implementation that only ends the flows of backends that
//! are gone keeps these. No socket pauses: an entry that is renewed does not time out.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, frontends,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{Frontend, Senders, Service, TARGET, Talk};

pub(crate) const CASE: Case = Case {
    id: "udp-zero-and-back",
    area: super::AREA,
    claims: &["udp-zero-and-back"],
    sentence: "UDP sockets that never pause reach the new endpoint after their Service had none, and none before",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, &[Frontend::ClusterIp, Frontend::NodePorts])),
};
pub(crate) const LB: Case = Case {
    id: "udp-zero-and-back-lb",
    sentence: "UDP sockets that never pause reach the new endpoint through a load balancer's address, too",
    features: &["loadbalancer"],
    needs: Needs {
        also: &[Capability::LoadBalancerAddresses, Capability::Outside],
        ..CASE.needs
    },
    run: |cx| Box::pin(run(cx, &[Frontend::Balancers])),
    ..CASE
};

async fn run(cx: &Context, through: &[Frontend]) -> Result<(), Halt> {
    cx.phase("staging: Services with one of two backends, and sockets that begin to send");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["old", "new"], &[], &[TARGET]).await?;
    let (old, new) = all.split_at(1);
    let mut services = Vec::new();
    for family in cx.families() {
        Service::create(cx, family, (&namespace, "keeps"), &[], old).await?;
        services.push(Service::create(cx, family, (&namespace, "zero"), through, old).await?);
    }
    fence::pass(cx).await?;
    let mut senders = Senders::none();
    for service in &services {
        for talk in [Talk::Answered, Talk::OneWay] {
            let dialled = service.dialled(cx, through, talk, "").await?;
            senders = senders.and(cx, dialled, talk, 1).await?;
        }
    }
    let (flows, within) = (senders.flows(), Within::from_now(cx.limits().service));
    let served = senders.reaching(old);
    flows
        .control(cx, "the old backend serves", &served, within)
        .await?;

    cx.phase("fault: the endpoint leaves, and nothing reaches it");
    for service in &services {
        service.list(cx, &[]).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    flows.come_to(cx, &senders.reaching(&[]), within).await?;

    cx.phase("verdict: another endpoint comes, and all sockets reach it");
    for service in &services {
        service.list(cx, new).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    flows.come_to(cx, &senders.reaching(new), within).await
}
