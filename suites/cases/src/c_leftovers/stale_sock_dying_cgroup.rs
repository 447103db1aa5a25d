//! `stale-sock-dying-cgroup`: the pinned socket links that the agent finds belong to a cgroup that is not the node's,
//! and in a second run to one that was removed. After its restart host processes and pods are served through the VIP by
//! the current backends, and the trap gets nothing.
//!
//! The witness: before the restart nothing is attached to the node's cgroup while links are pinned. An implementation
//! that pins no link is not supported, which is seen before the run. Both families share one restart.
use std::time::Duration;

use cluster::Stop;
use faults::{LeftoverPrograms, StoppedAgent};
use harness::{
    background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence, probing,
    recovery::{Recovering, Started},
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
};

use super::{
    generations::LONGEST,
    shared_vips::{Shop, hooks},
};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-dying-cgroup",
    area: super::AREA,
    claims: &["stale-sock-dying-cgroup"],
    sentence: "socket links to an empty or removed cgroup do not keep host processes from being served",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[OfTarget::PinnedLinks],
    },
    disruptive: true,
    manifest: include_str!("generations.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    let cgroups = vec![("another cgroup", false), ("removed", true)];
    for (cgroup, removed) in cx.axes().choose(cgroups, |(cgroup, _)| (*cgroup).to_owned()) {
        displaced(cx, &format!(", {cgroup}"), removed).await?;
    }
    Ok(())
}

async fn displaced(cx: &Context, suffix: &str, removed: bool) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase(&format!("each VIP serves the old backend{suffix}"));
    let shops: Vec<Shop> = Shop::stage(cx, node)
        .await?
        .into_iter()
        .map(|shop| shop.for_axis(suffix))
        .collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let by_old: Vec<Destination> = shops.iter().flat_map(Shop::by_old).collect();
    probing::control(
        cx,
        "each VIP serves the old backend",
        cx.clients(),
        &by_old,
        within,
    )
    .await?;

    cx.phase(&format!(
        "the agent is killed, its pinned links belong to another cgroup{suffix}"
    ));
    let mut recovery = Recovering::begin(cx, node).await?;
    let mut held =
        LeftoverPrograms::hold(cx.cluster(), node, &hooks(cx), cx.limits().longest(LONGEST)).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    let pins = held.displace(removed).await?;
    if pins.is_empty() {
        return Err(Halt::Inconclusive(
            "no pinned link attaches a program to the sockets of the agent's cgroup any more".to_owned(),
        ));
    }
    let list = held.list().await?;
    cx.fault(&format!(
        "agent of {node} killed; links to another cgroup pinned at {pins:?}{suffix}; attached to the node's: {list:?}"
    ));
    let is_held = |id: &u32| held.held().iter().any(|held| held.id == *id);
    if let Some(still) = list.iter().find(|hook| hook.effective.iter().any(is_held)) {
        return Err(Halt::Inconclusive(format!(
            "not witnessed: programs of the agent run at {} of the node's cgroup: {:?}",
            still.hook, still.effective
        )));
    }
    for shop in &shops {
        shop.replace(cx).await?;
    }

    cx.phase(&format!("the agent starts and finds the links{suffix}"));
    let ((), Started { healing, .. }) = recovery.start(cx, agent.start()).await?;

    cx.phase(&format!(
        "verdict: after the recovery limit the VIPs serve exactly the EndpointSlices, the old backends get nothing{suffix}"
    ));
    let current: Vec<Destination> = shops.iter().flat_map(Shop::by_new).collect();
    let judged = probing::judge(cx, cx.clients(), &current, healing).await?;
    fence::pass(cx).await?;
    let hold = cx.limits().hold;
    let after = background::hold_steadily(cx, cx.clients(), &current, hold).await?;
    let attempts = [judged, after].concat();
    for shop in &shops {
        probing::trap_untouched(cx, shop.axis(), &attempts, &shop.old).await?;
    }
    let list = held.list().await?;
    cx.record(
        &format!("attached to the node's cgroup at the end{suffix}"),
        format!("{list:?}"),
    );
    let axes: Vec<&str> = shops.iter().map(Shop::axis).collect();
    recovery.end(cx, &axes).await?;
    held.heal().await?;
    Ok(())
}
