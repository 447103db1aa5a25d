//! `fresh-agent-equal`: after a history as in the rows about releases, emptied Services and restarts, agents that start
//! without state serve what the agents before them served: what the API lists, with N probes from every node. Where
//! the target prints what its agents have programmed, that differs by no more lines than between two such starts.
//!
//! The history: all agents are killed and start; a culprit lets go of the backend that it shares with a victim whose name
//! begins with its own, and the victim is changed; a Service is emptied and refilled; another one loses one of two
//! endpoints. What was removed stays alive. Then, on every node, the agent is stopped, its clean-up removes maps, pins and
//! state, and it starts; nothing is written meanwhile.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cluster::Capability;
use harness::{
    agents::{self, Killed},
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition::Ready,
    context::Context,
    fence, frontends,
    objects::annotation,
    pods::Backend,
    sliced_service::{Seen, SlicedService, all_in},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};
use oracle::finding::{Finding, Weight};

use super::{TARGET, values};

pub(crate) const CASE: Case = Case {
    id: "fresh-agent-equal",
    area: super::AREA,
    claims: &["fresh-agent-equal"],
    sentence: "an agent that starts without state serves the same backends as the agent before it",
    tier: Tier::Hygiene,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentCleanup],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const DUMP: &str = "what agents have programmed";

/// The Services of a family.
struct Staged {
    culprit: SlicedService,
    victim: SlicedService,
    refilled: SlicedService,
    reduced: SlicedService,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services that share backends");
    let namespace = cx.namespace().await?;
    let target = cx.port(TARGET);
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[target], &[target]).await?;
    let (first, second) = backends.split_at(1);
    let mut all = Vec::new();
    for family in cx.families() {
        let namespace = cx.namespace().await?;
        let axis = family.to_string();
        let create = async |name: &str, listed: &[Backend]| {
            let mut values = values(&namespace, name, family, target);
            values["service"] = name.into();
            SlicedService::create(cx, &axis, family, values, all_in(listed, Ready)).await
        };
        all.push(Staged {
            culprit: create("t", first).await?,
            victim: create("t-ext", first).await?,
            refilled: create("refilled", &backends).await?,
            reduced: create("shorter", &backends).await?,
        });
    }
    fence::pass(cx).await?;
    let within = Within::from_now(cx.limits().service);
    let serving = dialled(cx, &all, |staged| {
        vec![
            (&staged.culprit, Seen::All(first)),
            (&staged.victim, Seen::All(first)),
            (&staged.refilled, Seen::All(&backends)),
            (&staged.reduced, Seen::All(&backends)),
        ]
    })?;
    serving.control(cx, "all serve", within).await?;

    cx.phase("history: a restart, a release, an emptying and a refill, an endpoint that leaves");
    Killed::kill(cx, &cx.nodes()).await?.start(cx).await?;
    fence::pass(cx).await?;
    for staged in &all {
        for emptied in [&staged.culprit, &staged.refilled] {
            emptied.list(cx, []).await?;
        }
        staged.reduced.list(cx, all_in(second, Ready)).await?;
    }
    fence::pass(cx).await?;
    for staged in &all {
        let changed = annotation("plumbline.example/changed", "after the release");
        cx.objects().patch(staged.victim.key(), changed).await?;
        staged.refilled.list(cx, all_in(&backends, Ready)).await?;
    }
    fence::pass(cx).await?;

    cx.phase("verdict: what agents serve that have lived through it");
    let listed = dialled(cx, &all, |staged| {
        vec![
            (&staged.culprit, Seen::Nothing),
            (&staged.victim, Seen::All(first)),
            (&staged.refilled, Seen::All(&backends)),
            (&staged.reduced, Seen::All(second)),
        ]
    })?;
    listed.judge(cx, Within::from_now(cx.limits().heal)).await?;
    let before = dumps(cx).await?;

    cx.phase("verdict: what agents serve that start without state");
    agents::start_afresh(cx, &cx.nodes()).await?;
    listed.judge(cx, Within::from_now(cx.limits().heal)).await?;
    let fresh = dumps(cx).await?;
    if before.is_empty() {
        cx.axes()
            .not_enabled(DUMP, "the target has no command that prints it");
        return Ok(());
    }
    agents::start_afresh(cx, &cx.nodes()).await?;
    listed
        .judge_briefly(cx, Within::from_now(cx.limits().heal))
        .await?;
    let again = dumps(cx).await?;
    for (node, dump) in &before {
        if let (Some(fresh), Some(again)) = (fresh.get(node), again.get(node)) {
            let finding = differs(node, dump, [fresh, again]);
            cx.axes().judged(DUMP, finding.into_iter().collect());
        }
    }
    Ok(())
}

/// What all clients dial of the Services.
fn dialled<'a>(
    cx: &Context,
    all: &'a [Staged],
    seen: impl Fn(&'a Staged) -> Vec<(&'a SlicedService, Seen<'a>)>,
) -> Result<Vantages, Halt> {
    let mut vantages = Vec::new();
    for (service, seen) in all.iter().flat_map(seen) {
        vantages.extend(service.dialled(cx, cx.clients().to_vec(), &cx.nodes(), seen)?);
    }
    Ok(vantages.into_iter().collect())
}

/// What the agent of each node has programmed, as its target prints it.
async fn dumps(cx: &Context) -> Result<BTreeMap<String, String>, Halt> {
    let mut dumps = BTreeMap::new();
    for node in cx.nodes() {
        if let Some(dump) = cx.cluster().agents()?.dump(&node).await? {
            dumps.insert(node, dump);
        }
    }
    Ok(dumps)
}

/// Lines of one dump that another one does not have.
fn only<'a>(of: &'a str, not: &str) -> Vec<&'a str> {
    let others: BTreeSet<&str> = not.lines().collect();
    of.lines().filter(|line| !others.contains(line)).collect()
}

/// Whether a dump differs by more lines from that of a start without state than two of those differ from each other:
/// these lines are about the start itself.
fn differs(node: &str, before: &str, [fresh, again]: [&str; 2]) -> Option<Finding> {
    let (gone, own_gone) = (only(before, fresh), only(again, fresh));
    let (new, own_new) = (only(fresh, before), only(fresh, again));
    (gone.len() > own_gone.len() || new.len() > own_new.len()).then(|| Finding {
        weight: Weight::Violation,
        subject: format!("what the agent of {node} had programmed before it started without state"),
        expected: format!("{} other lines than after it: {}", own_gone.len(), new.join("; ")),
        found: format!("{}: {}", gone.len(), gone.join("; ")),
        first: Vec::new(),
        counted: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lines_may_differ_as_between_two_starts_without_state() {
        let fresh = ["a\nprobe 1\n", "a\nprobe 2\n"];
        assert!(differs("node1", "probe 3\na\n", fresh).is_none());
        let finding = differs("node1", "a\nstale\nprobe 3\n", fresh).unwrap();
        assert_eq!(finding.found, "2: stale; probe 3");
        assert!(differs("node1", "probe 3\n", fresh).is_some(), "a is missing");
    }
}
