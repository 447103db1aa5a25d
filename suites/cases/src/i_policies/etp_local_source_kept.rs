//! `etp-local-source-kept`: with `externalTrafficPolicy: Local`, a client outside reaches only backends of the node
//! that it dials, and they see its own address.
//!
//! Every node has a backend, so that a policy that does not count shows. Servers on the nodes' hosts must see the
//! client's address too: where they don't, a machine between translates, and nothing can be decided. The control is a
//! twin with policy `Cluster`.
use std::time::Duration;

use super::staging::{self, Kind, On, TWIN};
use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    fence,
    host_servers::Servers,
    policies::Policies,
    verdict::Halt,
    waiting::Within,
};

pub(crate) const CASE: Case = Case {
    id: "etp-local-source-kept",
    area: super::AREA,
    claims: &["etp-local-source-kept"],
    sentence: "with externalTrafficPolicy Local, a node port reaches its node's backends, which see the client's address",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[Capability::Outside, Capability::HostNetwork],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("policies.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, Kind::NodePorts)),
};
pub(crate) const LB: Case = Case {
    id: "etp-local-source-kept-lb",
    sentence: "with externalTrafficPolicy Local, a load balancer's backends on the node see the client's address",
    features: &["loadbalancer"],
    needs: Needs {
        rights: Rights::Api,
        also: &[
            Capability::Outside,
            Capability::HostNetwork,
            Capability::SecondNetwork,
        ],
        ..CASE.needs
    },
    run: |cx| Box::pin(run(cx, Kind::LoadBalancer)),
    ..CASE
};

async fn run(cx: &Context, kind: Kind) -> Result<(), Halt> {
    cx.phase("staging: a Service with externalTrafficPolicy Local, and a twin without");
    let rows = [
        (TWIN, Policies::CLUSTER, On::EveryNode),
        ("near", Policies::EXTERNAL, On::EveryNode),
    ];
    let services = staging::services(cx, kind, &rows).await?;
    if kind == Kind::LoadBalancer {
        staging::route(cx, &services).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let outside: Vec<Client> = cx.clients().outside().into_iter().collect();
    let vantages = staging::dialled(cx, &services, kind, &outside)?;
    let twin = vantages.only(|target| target.name.starts_with(TWIN));
    twin.control(cx, "a twin with policy Cluster serves", within)
        .await?;
    let servers = Servers::start(cx, services[0].namespace(), cx.host_port()).await?;
    let mut own = Vec::new();
    for client in &outside {
        for family in cx.families() {
            let address = servers.see(cx, client, &kind.axis(family), family).await?;
            own.push((client.clone(), address));
        }
    }

    cx.phase("verdict: backends of the node alone answer, and have seen the client's address");
    let near = vantages.only(|target| !target.name.starts_with(TWIN));
    let attempts = near.judge(cx, within).await?;
    near.judge_sources(cx, &attempts, &own);
    Ok(())
}
