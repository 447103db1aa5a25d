//! `stale-map-pin`: pinned service maps of an earlier start hold entries of a deleted Service and of old backends; in a
//! second run their keys, values or sizes differ from those of the new agent. After its start, current VIPs serve the
//! EndpointSlices, deleted ones reach no backend, and the traps get nothing.
//!
//! The API changes while the agent is down: two backends of one Service are replaced by two others, another Service is
//! deleted. The witness: old programs, with their maps, still send to the traps. In the second run each map's pin is
//! replaced by another map with larger keys, larger values or more entries, and some of the old contents; the programs
//! keep the maps that they have.
use std::time::Duration;

use cluster::{Capability, Stop};
use faults::{Refitted, Remains, StoppedAgent};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
};

use super::replaced_backends::{Replaced, after, before, change, judge, start, stop};

pub(crate) const CASE: Case = Case {
    id: "stale-map-pin",
    area: super::AREA,
    claims: &["stale-map-pin"],
    sentence: "pinned maps of an earlier run, of the same layout or another, bring back neither Services nor backends",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentCleanup],
        target: &[OfTarget::PinnedMaps],
    },
    disruptive: true,
    manifest: include_str!("generations.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// How the new agent finds the pinned maps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    AsTheyWere,
    LaidOutOtherwise,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    let pins = vec![
        ("pins as they were", Found::AsTheyWere),
        ("pins laid out otherwise", Found::LaidOutOtherwise),
    ];
    for (axis, found) in cx.axes().choose(pins, |(axis, _)| (*axis).to_owned()) {
        pinned(cx, axis, found).await?;
    }
    Ok(())
}

async fn pinned(cx: &Context, axis: &str, found: Found) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase(&format!("{axis}: the old backends serve"));
    let services = Replaced::stage(cx, axis, node).await?;

    cx.phase(&format!("{axis}: the agent is killed, and the API changes"));
    let down = stop(cx, node, Stop::Kill).await?;
    let left = Remains::of(cx.cluster(), node).await?;
    cx.fault(&format!("left on {node}: {left}"));
    if !left.has("pins") {
        return Err(Halt::Inconclusive(
            "the implementation pins nothing on the node any more".to_owned(),
        ));
    }
    if found == Found::LaidOutOtherwise {
        let Refitted(refitted) = Refitted::on(cx.cluster(), node).await?;
        cx.fault(&format!("laid out otherwise: {refitted:?}"));
        if refitted.is_empty() {
            return Err(Halt::Inconclusive(
                "no map of the implementation is pinned any more that could be laid out otherwise".to_owned(),
            ));
        }
    }
    change(cx, &services).await?;

    cx.phase(&format!(
        "{axis}: witness, the old backends are reached while no agent runs"
    ));
    let within = Within::from_now(cx.limits().endpoints);
    let here = cx.clients().on(node);
    probing::witness(cx, "the old maps still serve", &here, &before(&services), within).await?;

    cx.phase(&format!("{axis}: the agent starts"));
    let up = start(cx, down).await?;
    cx.phase(&format!(
        "{axis}: verdict, the VIPs serve what the API lists, the old backends get nothing"
    ));
    judge(cx, &services, up).await?;

    cx.phase(&format!("{axis}: heal"));
    if found == Found::LaidOutOtherwise {
        // Maps that an agent did not adopt are of no use to it any more.
        let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
        cx.cluster().agents()?.clean_up(node).await?;
        agent.start().await?;
        cx.fault("healed: the agent was stopped, its state removed, and it was started again");
        let healing = Within::from_now(cx.limits().heal);
        probing::judge_briefly(cx, cx.clients(), &after(&services), healing).await?;
    }
    Ok(())
}
