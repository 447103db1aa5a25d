//! `etp-local-incluster`: `externalTrafficPolicy: Local` is about clients outside. The address of a load balancer
//! serves pods and hosts of every node, also of those without a backend. The core part: the node port of another node
//! serves a pod if that node has a backend, and otherwise reaches none.
//!
//! The only backend is on the first node. The control is a twin with policy `Cluster`. A pod that dials its own node,
//! and hosts that dial any node, are not judged: implementations differ.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    policies::Policies,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{self, Kind, On, TWIN};

pub(crate) const CASE: Case = Case {
    id: "etp-local-incluster",
    area: super::AREA,
    claims: &["etp-local-incluster"],
    sentence: "with externalTrafficPolicy Local, a load balancer address serves pods and hosts of every node",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("policies.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, Kind::LoadBalancer)),
};
pub(crate) const NODE_PORT: Case = Case {
    id: "etp-local-incluster-nodeport",
    sentence: "with externalTrafficPolicy Local, another node's port serves a pod only if that node has a backend",
    features: &[],
    run: |cx| Box::pin(run(cx, Kind::NodePorts)),
    ..CASE
};

async fn run(cx: &Context, kind: Kind) -> Result<(), Halt> {
    cx.phase("staging: a Service with externalTrafficPolicy Local, and a twin without");
    let rows = [
        (TWIN, Policies::CLUSTER, On::FirstNode),
        ("far", Policies::EXTERNAL, On::FirstNode),
    ];
    let services = staging::services(cx, kind, &rows).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let vantages = staging::dialled(cx, &services, kind, cx.clients())?;
    let twin = vantages.only(|target| target.name.starts_with(TWIN));
    twin.control(cx, "a twin with policy Cluster serves", within)
        .await?;

    cx.phase("verdict: every client gets what the policy leaves to it, for the hold time");
    let far = vantages.only(|target| !target.name.starts_with(TWIN));
    let attempts = far.hold(cx, within).await?;
    far.record_unserved(cx, &attempts);
    Ok(())
}
