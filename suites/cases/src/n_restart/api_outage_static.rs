//! `api-outage-static`: all agents lose the API. Services go on as last known, and no connection to a live backend
//! fails. One agent is restarted meanwhile where that needs no API, which is recorded; within the recovery limit of the API's
//! return its node serves, and all nodes follow what was written meanwhile.
//!
//! The cut is in the kernel of the nodes, and touches no client. The claim's 30 min are three hold times of the long
//! profile; other profiles scale them by theirs.
use std::time::{Duration, Instant};

use cluster::Capability;
use futures::future::try_join_all;
use harness::{
    agents::Killed,
    api_cut::{self, ApiCut},
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing,
    verdict::Halt,
    waiting::{Within, has_lasted},
};

use super::outage::Swapped;

pub(crate) const CASE: Case = Case {
    id: "api-outage-static",
    area: super::AREA,
    claims: &["api-outage-static"],
    sentence: "without an API, Services are served as last known, and agents go on with it when it is back",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::ApiServers],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    let services = Swapped::stage(cx, ("lasting-on", "without an API")).await?;
    let servers = api_cut::servers(cx).await?;
    let agents = api_cut::connected(cx, &servers).await?;

    cx.phase("fault: all agents lose the API; Services must serve for the hold time");
    let lasts = cx.limits().hold + cx.limits().endpoints;
    let cut = ApiCut::begin(cx, &agents, &servers, lasts).await?;
    api_cut::reset(cx, &agents, &servers).await?;
    let mut windows = Vec::new();
    for (clients, targets) in services.dialled(cx, 0).await? {
        windows.push(Background::start(cx, &clients, &targets, cx.limits().hold).await?);
    }
    try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;

    services.list(cx, 1).await?;
    has_lasted(Instant::now(), cx.limits().endpoints).await;
    services.are_unchanged(cx).await?;

    let can = &cx.cluster().describe().capabilities;
    if can.contains(&Capability::StartsWithoutApi) {
        restart(cx, &services).await?;
    } else {
        cx.axes().not_enabled(
            "an agent that starts without an API",
            "what starts agents in this cluster asks the API itself",
        );
    }
    cx.phase("verdict: the API is back, and all nodes follow it");
    cut.end(cx).await?;
    let within = Within::from_now(cx.limits().heal);
    for (clients, targets) in services.dialled(cx, 1).await? {
        probing::judge(cx, &clients, &targets, within).await?;
    }
    Ok(())
}

/// Restarts an agent, and records what its node's clients meet then.
async fn restart(cx: &Context, services: &Swapped) -> Result<(), Halt> {
    cx.phase("one agent is restarted without an API, which is recorded");
    let node = &cx.nodes()[0];
    Killed::kill(cx, std::slice::from_ref(node))
        .await?
        .start_at_once()
        .await?;
    let targets = services.inside(cx, 0).await?;
    for client in &cx.clients().on(node) {
        let attempts = probing::probe_briefly(cx, client, &targets).await?;
        probing::record_endings(cx, "an agent that starts without an API", &attempts);
    }
    Ok(())
}
