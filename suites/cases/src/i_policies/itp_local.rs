//! `itp-local`: with `internalTrafficPolicy: Local`, clients in pods and on hosts reach only the backends of their own
//! node through the ClusterIP; where that has none they reach no backend, though one on another node serves clients
//! there at the same time. Whether they are refused or get nothing is recorded.
//!
//! The control is a twin with policy `Cluster`, which the backend of the first node serves from every node.
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
    id: "itp-local",
    area: super::AREA,
    claims: &["itp-local"],
    sentence: "with internalTrafficPolicy Local, a ClusterIP reaches only backends of the client's own node",
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
    manifest: include_str!("policies.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with internalTrafficPolicy Local, and a twin without");
    let rows = [
        (TWIN, Policies::CLUSTER, On::FirstNode),
        ("far", Policies::INTERNAL, On::FirstNode),
        ("near", Policies::INTERNAL, On::EveryNode),
    ];
    let services = staging::services(cx, Kind::ClusterIp, &rows).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let vantages = staging::dialled(cx, &services, Kind::ClusterIp, cx.clients())?;
    let twin = vantages.only(|target| target.name.starts_with(TWIN));
    twin.control(cx, "a twin with policy Cluster serves", within)
        .await?;

    cx.phase("verdict: each node has its own backends for the hold time, and the others none");
    let attempts = vantages.hold(cx, within).await?;
    vantages.record_unserved(cx, &attempts);
    Ok(())
}
