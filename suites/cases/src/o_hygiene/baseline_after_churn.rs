//! `baseline-after-churn`: 500 Services are created, served, have their endpoint terminating, and are deleted, by turns
//! before and while that endpoint terminates. Then the node holds no more programs, links, maps with their entries, pins,
//! rules, chains, elements and listeners than before, by lists of the kernel. No agent restarts.
//!
//! Another Service changes meanwhile, as in any cluster: some agents remove with the next change what the last one has left.
//!
//! The row gives agents 15 minutes; here it is the recovery limit and the hold time, which `--profile long` makes about
//! as long. Flow tables empty by timeouts of their own (nf_conntrack, maps that forget what was not used lately) and are
//! recorded, not judged.
use std::time::Duration;

use cluster::Place;
use faults::Remains;
use futures::future::try_join_all;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    commands,
    conditions::Condition,
    context::Context,
    fence, frontends,
    names::Key,
    objects_left,
    pods::Backend,
    sliced_service::{Seen, SlicedService, all_in},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};

use super::{TARGET, values};

pub(crate) const CASE: Case = Case {
    id: "baseline-after-churn",
    area: super::AREA,
    claims: &["baseline-after-churn"],
    sentence: "after 500 Services have come and gone, the node holds as many objects as before",
    tier: Tier::Hygiene,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[harness::target_needs::OfTarget::Countable],
    },
    disruptive: true,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const CYCLES: usize = 500;
const AT_ONCE: usize = 50;
const AXIS: &str = "what the node holds";
const FLOWS: &str = "cat /proc/sys/net/netfilter/nf_conntrack_count 2>/dev/null || echo none";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service that stays");
    let node = cx.nodes()[0].clone();
    let namespace = cx.namespace().await?;
    let backends = frontends::serving_on(cx, &namespace, &[("b", &*node)], &[TARGET], &[TARGET]).await?;
    let stays = create(cx, &namespace, "lasting", 0..cx.families().len(), &backends).await?;
    fence::pass(cx).await?;
    let within = Within::from_now(cx.limits().service);
    seen(cx, &node, &stays, &backends)?
        .control(cx, "the Service is served", within)
        .await?;
    let running = agents::all(cx).await?;
    let before = Remains::with_contents(cx.cluster(), &node).await?;
    cx.record("before", before.to_string());
    let place = Place::Host { node: node.clone() };
    let flows = commands::output(cx, &place, FLOWS).await?;

    cx.phase("churn: Services come, are served, and go");
    for first in (0..CYCLES).step_by(AT_ONCE) {
        let numbers = first..CYCLES.min(first + AT_ONCE);
        let services = create(cx, &namespace, "churned", numbers, &backends).await?;
        fence::pass(cx).await?;
        let within = Within::from_now(cx.limits().service);
        seen(cx, &node, &services, &backends)?
            .judge_briefly(cx, within)
            .await?;
        end(cx, &services, &backends).await?;
    }

    cx.phase("verdict: as much as before");
    let within = Within::from_now(cx.limits().heal + cx.limits().hold);
    let after = format!("{CYCLES} Services have come and gone");
    let node_before = (&*node, &before);
    objects_left::judge(cx, AXIS, node_before, within, &after).await?;
    let flows_now = commands::output(cx, &place, FLOWS).await?;
    let tracked = format!("{} before, {} after", flows.trim(), flows_now.trim());
    cx.record("flows that nf_conntrack has, not judged", tracked);
    let restarted = agents::restarted_since(cx, running.as_ref()).await?;
    if !restarted.is_empty() {
        let why = format!(
            "agents have started again, which empties what they hold: {}",
            restarted.join(", ")
        );
        cx.axes().inconclusive(AXIS, why, Vec::new());
    }
    let within = Within::from_now(cx.limits().heal);
    seen(cx, &node, &stays, &backends)?
        .judge_briefly(cx, within)
        .await
}

/// Creates Services of these numbers, whose names begin so, in all families by turns.
async fn create(
    cx: &Context,
    namespace: &str,
    name: &str,
    numbers: impl Iterator<Item = usize>,
    backends: &[Backend],
) -> Result<Vec<SlicedService>, Halt> {
    let families = cx.families();
    let one = |number: usize| {
        let family = families[number % families.len()];
        let (axis, values) = (
            format!("{family}, served meanwhile"),
            values(namespace, &format!("{name}-{number}"), family, TARGET),
        );
        async move { SlicedService::create(cx, &axis, family, values, all_in(backends, Condition::Ready)).await }
    };
    try_join_all(numbers.map(one)).await
}

/// Ends them: their endpoint terminates, and every second one is deleted without a wait for what that does.
async fn end(cx: &Context, services: &[SlicedService], backends: &[Backend]) -> Result<(), Halt> {
    let list = |service: &SlicedService, condition| {
        let service = service.clone();
        async move { service.list(cx, all_in(backends, condition)).await }
    };
    let (stopped, draining): (Vec<_>, Vec<_>) = (
        services.iter().skip(1).step_by(2).collect(),
        services.iter().step_by(2).collect(),
    );
    try_join_all(stopped.iter().map(|service| list(service, Condition::Stopped))).await?;
    try_join_all(draining.iter().map(|service| list(service, Condition::Draining))).await?;
    let delete = |service: &SlicedService| {
        let key = service.key().clone();
        async move {
            cx.objects().delete(&key).await?;
            cx.objects().delete(&Key::slice(&key.namespace, &key.name)).await
        }
    };
    try_join_all(services.iter().map(delete)).await.map(drop)
}

/// What a client in a pod of the node dials.
fn seen(cx: &Context, node: &str, services: &[SlicedService], by: &[Backend]) -> Result<Vantages, Halt> {
    let mut clients = cx.clients().in_pods();
    clients.retain(|client| client.node == node);
    let mut all = Vec::new();
    for service in services {
        all.extend(service.dialled(cx, clients.clone(), &[], Seen::All(by))?);
    }
    Ok(all
        .into_iter()
        .filter(|(_, targets)| !targets.is_empty())
        .collect())
}
