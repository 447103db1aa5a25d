//! `dead-node-excluded`: a node loses its power, silently. Once its endpoints are unready or terminating they get no new
//! connection, through the eviction of their pods and through whatever is written of them while they terminate.
//!
//! Ready endpoints exist on two other nodes, so that a fallback to terminating ones is never due.
use std::time::Duration;

use cluster::LONGEST;
use harness::{
    api_faults::lose_power,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    conditions::Condition,
    context::Context,
    fence,
    frontends::{self, permitting},
    probing,
    sliced_service::{Seen, SlicedService, all_in},
    slices::themselves,
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};
use oracle::check::Permitted;

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "dead-node-excluded",
    area: super::AREA,
    claims: &["dead-node-excluded"],
    sentence: "endpoints of a node that lost power get no new connection once they are unready or terminating",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 3,
        families: Families::Any,
        rights: Rights::Node,
        also: &[cluster::Capability::PowerLoss],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("dead_node_excluded.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// What is written of the endpoint, one after the other. Its pod is evicted before the second.
const WRITES: [(&str, [Condition; 3]); 2] = [
    (
        "unready first",
        [Condition::Unready, Condition::Stopped, Condition::Draining],
    ),
    (
        "terminating at once",
        [Condition::Draining, Condition::Stopped, Condition::Draining],
    ),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with endpoints on three nodes");
    let namespace = cx.namespace().await?;
    let nodes: [String; 3] = cx.nodes()[..3].to_vec().try_into().unwrap_or_default();
    let [first, second, last] = &nodes;
    let placed = [("b1", first.as_str()), ("b2", second), ("dead", last)];
    let all = frontends::serving_on(cx, &namespace, &placed, &TARGETS, &TARGETS).await?;
    let (ready, dead) = all.split_at(2);
    let values = |shape: &str, family, target| values(&namespace, shape, family, target);
    let services = SlicedService::create_shapes(cx, &WRITES, &TARGETS, &all, values).await?;
    let living = &nodes[..2];
    let clients: Vec<Client> = living.iter().flat_map(|node| cx.clients().on(node)).collect();
    let seen = |seen| {
        let dialled = |(service, _): &(SlicedService, _)| service.dialled(cx, clients.clone(), living, seen);
        let all: Result<Vec<_>, Halt> = services.iter().map(dialled).collect();
        Ok::<Vantages, Halt>(all?.into_iter().flatten().collect())
    };
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    seen(Seen::All(&all))?
        .control(cx, "all three serve", within)
        .await?;

    cx.phase("fault: a node loses its power");
    let lost = lose_power(cx, last, LONGEST).await?;
    let mut silent = Vec::new();
    for ((service, _), target) in services.iter().zip(TARGETS.iter().cycle()) {
        let itself = themselves(service.axis(), service.family(), &[(&dead[0], *target)])?;
        silent.extend(permitting(&itself, &Permitted::None));
    }
    let within = Within::from_now(cx.limits().endpoints);
    probing::witness(cx, "its pod does not answer", &clients, &silent, within).await?;

    let others = seen(Seen::All(ready))?;
    for step in 0..3 {
        cx.phase(
            [
                "fault: its endpoint is unready, or terminating",
                "fault: its pod is evicted",
                "fault: it terminates still",
            ][step],
        );
        if step == 1 {
            cx.delete_backends(dead).await?;
        }
        for (service, written) in &services {
            let listed = all_in(ready, Condition::Ready).chain(all_in(dead, written[step]));
            service.list(cx, listed).await?;
        }
        let within = Within::from_now(cx.limits().endpoints);
        fence::pass_on(cx, living).await?;
        others.judge(cx, within).await?;
    }

    cx.phase("verdict: the others serve, for the hold time, and when the node is back");
    let held = others.steadily(cx, cx.limits().hold).await?;
    held.hold(cx).await?;
    lost.heal().await?;
    let within = Within::from_now(cx.limits().endpoints);
    others.judge_briefly(cx, within).await
}
