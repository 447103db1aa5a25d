//! `restart-prunes-deleted`: while the agent of a node is down a Service is deleted, an endpoint is removed from
//! another, one is added to a third, and a fourth is created. Within the recovery limit of the start the deleted one
//! reaches no backend, the removed endpoint gets nothing, and what was added serves. Nothing is written after the
//! start.
//!
//! What was deleted has no event in the new agent's watch: only that it is missing in the list says so. All backends
//! stay alive.
use std::time::Duration;

use harness::{
    agents::Killed,
    background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontend_kinds::{Kind, inside_and_outside},
    frontends::{self, Vantage},
    probing,
    verdict::Halt,
    waiting::Within,
};

use super::listed::{Listed, TARGET, through};

pub(crate) const CASE: Case = Case {
    id: "restart-prunes-deleted",
    area: super::AREA,
    claims: &["restart-prunes-deleted"],
    sentence: "what was deleted while the agent was down reaches no backend after its start, and what was added is served",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const KINDS: [Kind; 2] = [Kind::ClusterIp, Kind::NodePort];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services that will be deleted, lose a backend, and gain one");
    let namespace = cx.namespace().await?;
    let node = &cx.nodes()[0];
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let (one, both) = (&backends[..1], &backends[..]);
    let (mut deleted, mut left, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for family in cx.families() {
        let create =
            async |names, listed| Listed::create(cx, &namespace, names, family, &KINDS, listed).await;
        deleted.push(create(("withdrawn", "deleted"), both).await?);
        left.push(create(("reduced", "removed endpoint"), both).await?);
        joined.push(create(("extended", "added endpoint"), one).await?);
    }
    cx.phase("control: all serve");
    let mut control = Vec::new();
    for (services, listed) in [(&deleted, both), (&left, both), (&joined, one)] {
        for service in services {
            control.extend(service.serves(cx, listed).await?);
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in dialled(cx, node, control) {
        probing::control(cx, "all serve", &clients, &targets, within).await?;
    }

    cx.phase("fault: the agent is killed, and the API changes while it is down");
    let killed = Killed::kill(cx, std::slice::from_ref(node)).await?;
    for service in &deleted {
        service.delete(cx).await?;
    }
    for service in &left {
        service.list(cx, one).await?;
    }
    for service in &joined {
        service.list(cx, both).await?;
    }
    let mut expected = Vec::new();
    for family in cx.families() {
        let names = ("launched", "created");
        let fresh = Listed::create(cx, &namespace, names, family, &KINDS, &backends[1..]).await?;
        expected.extend(fresh.serves(cx, &backends[1..]).await?);
    }
    for service in &deleted {
        expected.extend(service.is_dead(cx).await?);
    }
    for (services, listed) in [(&left, one), (&joined, both)] {
        for service in services {
            expected.extend(service.serves(cx, listed).await?);
        }
    }
    killed.start(cx).await?;

    cx.phase("verdict: the node serves what the API lists, for the hold time");
    let within = Within::from_now(cx.limits().heal);
    background::judge_held(cx, &dialled(cx, node, expected), within).await?;
    Ok(())
}

/// Clients of the node, and the one outside through it.
fn dialled(
    cx: &Context,
    node: &str,
    targets: Vec<(Kind, harness::destination::Destination)>,
) -> Vec<Vantage> {
    let [inside, outside] = inside_and_outside(&through(node, targets));
    let beyond = cx.clients().outside().map(|client| (vec![client], outside));
    [(cx.clients().on(node), inside)]
        .into_iter()
        .chain(beyond)
        .collect()
}
