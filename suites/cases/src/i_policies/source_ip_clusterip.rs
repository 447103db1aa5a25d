//! `source-ip-clusterip`: through a ClusterIP, backends on the client's node and on others see the address of the
//! client pod itself. For clients of a node's host the address is recorded.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, host_servers,
    own_targets::record_sources,
    policies::Policies,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{self, Kind, On};

pub(crate) const CASE: Case = Case {
    id: "source-ip-clusterip",
    area: super::AREA,
    claims: &["source-ip-clusterip"],
    sentence: "through a ClusterIP, backends on the same node and on others see the client pod's own address",
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
    longest: Duration::from_secs(180),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with a backend on every node");
    let rows = [("seen", Policies::CLUSTER, On::EveryNode)];
    let services = staging::services(cx, Kind::ClusterIp, &rows).await?;
    let mut own = Vec::new();
    for family in cx.families() {
        for client in cx.clients().in_pods() {
            let address = host_servers::address_of(cx, &client, family).await?;
            own.push((client, address));
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: every backend answers each pod, and has seen its address");
    let pods = staging::dialled(cx, &services, Kind::ClusterIp, &cx.clients().in_pods())?;
    let attempts = pods.judge(cx, within).await?;
    pods.judge_sources(cx, &attempts, &own);
    let hosts = staging::dialled(cx, &services, Kind::ClusterIp, &cx.clients().on_hosts())?;
    record_sources(cx, &hosts.judge(cx, within).await?);
    Ok(())
}
