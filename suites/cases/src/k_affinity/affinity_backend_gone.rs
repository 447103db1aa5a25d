//! `affinity-backend-gone`: the backend that a client is bound to leaves the EndpointSlice, or terminates while others
//! are ready. From the endpoint propagation limit on the client's new connections reach a ready one and stay there;
//! none fails.
//!
//! It was the only endpoint first, so that each client is bound to it; it stays alive, answering and logging.
use std::{slice::from_ref, time::Duration};

use harness::{
    affinity,
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    sliced_service::{Seen, SlicedService, all_in},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
    write_effect::Effect,
};
use oracle::history::Transport;

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "affinity-backend-gone",
    area: super::AREA,
    claims: &["affinity-backend-gone"],
    sentence: "a client whose backend leaves or terminates is bound to a ready one, and none of its connections fails",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// What becomes of the backend's endpoint; `None`: it is removed.
const SHAPES: [(&str, Option<Condition>); 2] = [("leaves", None), ("terminates", Some(Condition::Draining))];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with one endpoint, to which all clients are bound");
    let namespace = cx.namespace().await?;
    let node = cx.nodes().remove(0);
    let placed = ["gone", "b1", "b2"].map(|name| (name, node.as_str()));
    let all = frontends::serving_on(cx, &namespace, &placed, &TARGETS, &TARGETS).await?;
    let (gone, others) = all.split_at(1);
    let values = |shape: &str, family, target| values(&namespace, shape, family, target);
    let services = SlicedService::create_shapes(cx, &SHAPES, &TARGETS, gone, values).await?;
    // At one node from outside: bindings across nodes are no claim.
    let seen = |seen| -> Result<Vantages, Halt> {
        let inside = cx.clients().to_vec();
        let dialled =
            |(service, _): &(SlicedService, _)| service.dialled(cx, inside.clone(), from_ref(&node), seen);
        let all: Result<Vec<_>, Halt> = services.iter().map(dialled).collect();
        Ok(all?.into_iter().flatten().collect())
    };
    let bound = seen(Seen::All(gone))?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    bound.control(cx, "the endpoint serves", within).await?;
    for (service, _) in &services {
        service.list(cx, all_in(&all, Condition::Ready)).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    let what = "clients stay with the endpoint that they are bound to";
    bound.takes_effect(cx, Effect::Bound, what, within).await?;

    cx.phase("fault: it leaves, or terminates");
    // Of TCP: a datagram may be on its way when its flow ends, and what becomes of flows is another claim.
    let any = seen(Seen::OneOf(&all))?.only(Transport::Tcp);
    let any = any.start(cx, cx.limits().hold).await?;
    for (service, becomes) in &services {
        let left = becomes.map(|condition| (&gone[0], condition));
        service
            .list(cx, left.into_iter().chain(all_in(others, Condition::Ready)))
            .await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: each client reaches one ready backend, for the hold time");
    let ready = seen(Seen::OneOf(others))?;
    let attempts = ready.judge(cx, within).await?;
    let held = ready.steadily(cx, cx.limits().hold).await?;
    let (_, held) = futures::try_join!(any.hold(cx), held.hold(cx))?;
    affinity::judge_bound(cx, &ready, &[attempts, held].concat(), cx.limits().probes / 2);
    Ok(())
}
