//! `state-wiped-recovers`: a third party deletes the tables of the implementation's rules, the entries of its maps, or
//! detaches its programs. A client sees it, nothing is written to the API, and Services are exact again within 120 s, or
//! the agent says within 60 s that it is not ready.
//!
//! Each kind of object is an axis, one after the other; what a target does not have is not enabled, and neither are rules
//! in tables that were there before the agent: others have theirs in them. Where Services do not come back, the
//! agent is restarted.
use std::{collections::BTreeSet, pin::pin, sync::OnceLock, time::Duration};

use cluster::Capability;
use faults::{Remains, Removed, Wiped};
use futures::future;
use harness::{
    agents::{self, Killed},
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontend_kinds::{Kind, inside_and_outside},
    frontends,
    target_needs::OfTarget,
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};

use super::listed::{Listed, TARGET, through};

pub(crate) const CASE: Case = Case {
    id: "state-wiped-recovers",
    area: super::AREA,
    claims: &["state-wiped-recovers"],
    sentence: "after another process removes the implementation's state, Services are exact again or the agent turns unready",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Baseline],
        target: &[OfTarget::CountableBeyondBaseline],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// By when Services are exact again, and by when the agent is unready.
const EXACT: Duration = Duration::from_secs(120);
const UNREADY: Duration = Duration::from_secs(60);

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service for each kind of object");
    let node = cx.nodes()[0].clone();
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let before = Remains::before(cx.cluster(), &node).await?;
    let own = Remains::with_contents(cx.cluster(), &node).await?.beyond(&before);
    let is_new = own.tables().is_disjoint(&before.tables());
    let tables: Vec<String> = own.tables().into_iter().map(str::to_owned).collect();
    let kinds = [
        ("rules", Wiped::Tables(&tables), is_new && !tables.is_empty()),
        ("entries of maps", Wiped::Entries, own.has("maps")),
        ("programs", Wiped::Programs, own.has_programs()),
    ];
    let (there, lacking): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|(.., has)| *has);
    for (axis, ..) in lacking {
        let why = "the implementation has none of its own on the node";
        cx.axes().not_enabled(axis, why);
    }
    let mut wiped = Vec::new();
    for (axis, what, _) in cx.axes().choose(there, |(axis, ..)| (*axis).to_owned()) {
        let mut targets = Vec::new();
        for family in cx.families() {
            let names = (&*axis.replace(' ', "-"), axis);
            let listed = Listed::create(cx, &namespace, names, family, &KINDS, &backends).await?;
            targets.extend(listed.serves(cx, &backends).await?);
        }
        let [inside, outside] = inside_and_outside(&through(&node, targets));
        let beyond = cx.clients().outside().map(|client| (vec![client], outside));
        let dialled = [(cx.clients().on(&node), inside)].into_iter().chain(beyond);
        wiped.push((axis, what, dialled.collect::<Vantages>()));
    }
    fence::pass(cx).await?;
    for (axis, what, dialled) in &wiped {
        wipe(cx, &node, (axis, *what), dialled).await?;
    }
    Ok(())
}

const KINDS: [Kind; 2] = [Kind::ClusterIp, Kind::NodePort];

/// Control, fault, witness and verdict of one kind.
async fn wipe(
    cx: &Context,
    node: &str,
    (what, wiped): (&str, Wiped<'_>),
    dialled: &Vantages,
) -> Result<(), Halt> {
    cx.phase(&format!("control: served, with all {what}"));
    let within = Within::from_now(cx.limits().heal);
    dialled
        .control(cx, &format!("all {what} are there"), within)
        .await?;

    cx.phase(&format!("fault: a third party removes {what}"));
    let within = Within::from_now(EXACT);
    let seen = Within::from_now(cx.limits().endpoints);
    let removal = Removed::from(cx.cluster(), node, wiped);
    let (removed, is_seen) = future::join(removal, dialled.fails_once(cx, seen)).await;
    cx.fault(&format!("{} {what} removed on {node}", removed?.0));
    let axes: BTreeSet<&str> = dialled
        .groups()
        .iter()
        .flat_map(|(_, targets)| targets)
        .map(|target| &*target.axis)
        .collect();
    if !is_seen? {
        for axis in axes {
            let why = format!("not witnessed: no client sees that {what} were removed");
            cx.axes().inconclusive(axis, why, Vec::new());
        }
        return Ok(());
    }

    cx.phase(&format!(
        "verdict: without a write, {what} are there again, or the agent is unready"
    ));
    let unready = OnceLock::new();
    let looks = pin!(async {
        let limit = Within::from(within.since, UNREADY);
        if let Some(when) = agents::turned_unready(cx, node, limit).await? {
            let _: Result<(), _> = unready.set(when);
        }
        future::pending::<Result<bool, Halt>>().await
    });
    let settles = pin!(dialled.settles(cx, within));
    let exact = future::select(settles, looks).await.factor_first().0?;
    if let Some(unready) = unready.get() {
        let name = format!("the agent was unready after its {what} were removed");
        cx.record_delay(&name, unready.duration_since(within.since), UNREADY);
    }
    if exact {
        cx.record_delay(
            &format!("{what} are there again"),
            within.since.elapsed(),
            within.limit,
        );
    } else if unready.get().is_some() {
        for axis in axes {
            cx.axes().judged(axis, Vec::new());
        }
    }
    if exact || unready.get().is_none() {
        dialled.judge_briefly(cx, within).await?;
    }
    if !exact {
        Killed::kill(cx, &[node.to_owned()]).await?.start(cx).await?;
    }
    Ok(())
}
