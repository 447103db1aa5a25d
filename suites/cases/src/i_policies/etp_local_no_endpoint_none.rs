//! `etp-local-no-endpoint-none`: with `externalTrafficPolicy: Local`, a client outside reaches no backend through a
//! node that has none, while the one on the first node, alive, serves it through its own. Whether it is refused or gets
//! nothing is recorded.
//!
//! The control is a twin with policy `Cluster`, which the same backend serves through every node.
use std::time::Duration;

use cluster::Capability;
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
    id: "etp-local-no-endpoint-none",
    area: super::AREA,
    claims: &["etp-local-no-endpoint-none"],
    sentence: "with externalTrafficPolicy Local, the node port of a node without a backend reaches none",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("policies.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, Kind::NodePorts)),
};
pub(crate) const LB: Case = Case {
    id: "etp-local-no-endpoint-none-lb",
    sentence: "with externalTrafficPolicy Local, a load balancer address reaches no backend by a node without one",
    features: &["loadbalancer"],
    needs: Needs {
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::SecondNetwork],
        ..CASE.needs
    },
    run: |cx| Box::pin(run(cx, Kind::LoadBalancer)),
    ..CASE
};

async fn run(cx: &Context, kind: Kind) -> Result<(), Halt> {
    cx.phase("staging: a Service with externalTrafficPolicy Local, and a twin without");
    let rows = [
        (TWIN, Policies::CLUSTER, On::FirstNode),
        ("far", Policies::EXTERNAL, On::FirstNode),
    ];
    let services = staging::services(cx, kind, &rows).await?;
    if kind == Kind::LoadBalancer {
        staging::route(cx, &services).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let outside: Vec<_> = cx.clients().outside().into_iter().collect();
    let vantages = staging::dialled(cx, &services, kind, &outside)?;
    let twin = vantages.only(|target| target.name.starts_with(TWIN));
    twin.control(cx, "a twin with policy Cluster serves", within)
        .await?;

    cx.phase("verdict: for the hold time, nodes without a backend reach none, and the first node serves");
    let attempts = vantages.hold(cx, within).await?;
    vantages.record_unserved(cx, &attempts);
    Ok(())
}
