//! `mode-switch-clean`: the agent of a node ends and starts in another of its datapath modes, and later in its own again.
//! After each start the node serves what the EndpointSlice lists, and what it lists next.
//!
//! Only the change after a switch shows a remnant of the former mode: until then, what it knows is right. All backends
//! stay alive. Nothing is removed by hand: modes follow each other without clean-up (KEP-3866).
use std::time::Duration;

use cluster::{Stop, Variant};
use faults::StoppedAgent;
use harness::{
    agents,
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontend_kinds::Kind,
    frontends::{self, Vantage},
    pods::Backend,
    probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
};

use super::TARGET;
use crate::{
    n_restart::listed::{Listed, through},
    source_ports,
};

pub(crate) const CASE: Case = Case {
    id: "mode-switch-clean",
    area: super::AREA,
    claims: &["mode-switch-clean"],
    sentence: "after a switch to another datapath mode, and back, nothing of the former mode answers clients",
    tier: Tier::Hygiene,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[OfTarget::Variant(Variant::OtherMode)],
    },
    disruptive: true,
    manifest: include_str!("../n_restart/agents.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const KINDS: [Kind; 2] = [Kind::ClusterIp, Kind::NodePort];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service of one backend");
    let namespace = cx.namespace().await?;
    let node = &cx.nodes()[0];
    let backends = frontends::serving(cx, &namespace, &["b1", "b2", "b3"], &[TARGET], &[TARGET]).await?;
    let mut services = Vec::new();
    for family in cx.families() {
        let names = ("switched", "switched");
        services.push(Listed::create(cx, &namespace, names, family, &KINDS, &backends[..1]).await?);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in dialled(cx, node, &services, &backends[0]).await? {
        probing::control(cx, "it serves", &clients, &targets, within).await?;
    }

    cx.phase("the agent ends, and starts in its other mode");
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
    let switched = agent.start_as(Variant::OtherMode).await?;
    cx.fault(&format!("agent of {node} ended, and started in its other mode"));
    let within = Within::from_now(cx.limits().heal);
    agents::ready(cx, node, &before, within).await?;
    // None of a client that dialled while neither mode had its rules yet, for which conntrack goes on translating nothing.
    let [first, second] = [source_ports::FIRST_HALF, source_ports::SECOND_HALF];
    serves_and_follows(cx, node, &services, &backends[..2], within, first).await?;

    cx.phase("and in its own mode again");
    let before = cx.cluster().agents()?.state(node).await?;
    switched.heal().await?;
    cx.fault(&format!("agent of {node} started in its own mode"));
    let within = Within::from_now(cx.limits().heal);
    agents::ready(cx, node, &before, within).await?;
    serves_and_follows(cx, node, &services, &backends[1..], within, second).await
}

/// Verdict: the node serves the first backend, and the second once the EndpointSlices list that alone.
async fn serves_and_follows(
    cx: &Context,
    node: &str,
    services: &[Listed],
    backends: &[Backend],
    within: Within,
    ports: [u16; 2],
) -> Result<(), Halt> {
    let [now, next] = backends else {
        return Err(Halt::Harness(format!(
            "expected two backends, found {}",
            backends.len()
        )));
    };
    frontends::judge_all_briefly(cx, &dialled(cx, node, services, now).await?, within).await?;
    cx.phase("verdict: the backend changes, and the former one gets nothing, for the hold time");
    let mut since = within;
    for service in services {
        let written = service.list(cx, std::slice::from_ref(next)).await?;
        since = Within::from(written.at, cx.limits().endpoints);
    }
    let dialled = dialled(cx, node, services, next).await?;
    frontends::judge_all_briefly(cx, &dialled, since).await?;
    let mut windows = Vec::new();
    for (clients, targets) in &dialled {
        let clients: Vec<_> = clients.iter().map(|client| (client.clone(), ports)).collect();
        windows.push(Background::start_from(cx, &clients, targets, cx.limits().hold).await?);
    }
    frontends::hold_all(cx, windows).await
}

/// What clients of the node meet at ClusterIPs, and the one outside at the node's ports, if this backend alone is listed.
///
/// Pods don't dial node ports: a datapath may give those datagrams source ports of its own, outside of what kernels give sockets,
/// and so [`source_ports`] of the same pod's other sockets.
async fn dialled(
    cx: &Context,
    node: &str,
    services: &[Listed],
    backend: &Backend,
) -> Result<Vec<Vantage>, Halt> {
    let mut targets = Vec::new();
    for service in services {
        targets.extend(service.serves(cx, std::slice::from_ref(backend)).await?);
    }
    let (inside, outside): (Vec<_>, Vec<_>) = through(node, targets)
        .into_iter()
        .partition(|(kind, _)| *kind == Kind::ClusterIp);
    let [inside, outside] =
        [inside, outside].map(|targets| targets.into_iter().map(|(_, target)| target).collect());
    let beyond = cx.clients().outside().map(|client| (vec![client], outside));
    Ok([(cx.clients().on(node), inside)]
        .into_iter()
        .chain(beyond)
        .collect())
}
