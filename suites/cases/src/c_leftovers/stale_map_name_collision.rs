//! `stale-map-name-collision`: maps of another owner have the names of the agent's maps, as far as the kernel keeps
//! names. Every VIP follows the API, and a clean-up removes only what the agent owns.
//!
//! Each map that the agent's connect programs use gets a twin: the same name, the same layout, one sentinel entry, used
//! by a program of another owner on the same hook. First the twins are younger than the agent's maps, which it finds by
//! its pins; after its clean-up they are older than the maps that it creates again. A twin must keep its sentinel, and
//! nothing else, to the end.
use std::time::Duration;

use cluster::{Capability, Family, Stop};
use faults::{Twin, TwinMaps};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, probing,
    target_needs::OfTarget,
    verdict::Halt,
};
use oracle::finding::{Finding, Weight};

use super::{
    generations::CONNECT,
    replaced_backends::{Replaced, after, change, judge, start, stop},
};

pub(crate) const CASE: Case = Case {
    id: "stale-map-name-collision",
    area: super::AREA,
    claims: &["stale-map-name-collision"],
    sentence: "maps of another owner with the names of the agent's are neither used nor removed",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentCleanup],
        target: &[OfTarget::MapsAt(CONNECT)],
    },
    disruptive: true,
    manifest: include_str!("generations.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Axis of the twins.
const TWINS: &str = "twins";

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    let hook = match cx.families()[..] {
        [Family::IPv6] => "connect6",
        _ => "connect4",
    };
    cx.phase("twins of the agent's maps are made");
    // A newly started agent attaches nothing before it has read the API.
    fence::pass(cx).await?;
    let expires = cx.limits().longest(CASE.longest);
    let (mut twins, made) = TwinMaps::make(cx.cluster(), node, hook, expires).await?;
    if made.is_empty() {
        return Err(Halt::Inconclusive(format!(
            "no map that programs at {hook} of the agent's cgroup use could have a twin"
        )));
    }
    cx.fault(&format!("twins on {node}: {made:?}"));
    if let Some(wrong) = made.iter().find_map(|twin| twin.wrong.as_ref()) {
        let why = format!("not witnessed (the twins are as they were made): {wrong}");
        cx.axes().inconclusive(TWINS, why, Vec::new());
    }

    let ages = vec![("younger twins", false), ("older twins", true)];
    for (axis, removed) in cx.axes().choose(ages, |(axis, _)| (*axis).to_owned()) {
        cx.phase(&format!("{axis}: the old backends serve"));
        let services = Replaced::stage(cx, axis, node).await?;
        cx.phase(&format!("{axis}: the agent ends, and the API changes"));
        let how = if removed { Stop::Term } else { Stop::Kill };
        let down = stop(cx, node, how).await?;
        if removed {
            cx.cluster().agents()?.clean_up(node).await?;
            let left = twins.look().await?;
            judge_twins(cx, "the agent's clean-up", &left);
        }
        change(cx, &services).await?;
        cx.phase(&format!(
            "{axis}: the agent starts, and every VIP follows the API"
        ));
        let up = start(cx, down).await?;
        let healing = up.healing;
        judge(cx, &services, up).await?;
        judge_twins(cx, axis, &twins.look().await?);
        probing::judge_briefly(cx, cx.clients(), &after(&services), healing).await?;
    }

    cx.phase("heal");
    twins.heal().await?;
    cx.fault("healed: the twins are gone");
    Ok(())
}

fn judge_twins(cx: &Context, after: &str, twins: &[Twin]) {
    let wrong = |twin: &Twin| {
        Some(Finding {
            weight: Weight::Violation,
            subject: format!("the twin of map {} ({}), after {after}", twin.of, twin.name),
            expected: "its sentinel and nothing else, and its program attached".to_owned(),
            found: twin.wrong.clone()?,
            first: Vec::new(),
            counted: None,
        })
    };
    cx.axes().judged(TWINS, twins.iter().filter_map(wrong).collect());
}
