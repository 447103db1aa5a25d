//! `terminating-not-preferred`: while a ready endpoint exists, a terminating one that still serves gets no new
//! connection. Nor does it from clients that were bound to it by session affinity, nor from those that come again by a
//! source port from which they had reached it; and under policy `Local`, a ready one of the node counts.
//!
//! It was the only endpoint first, so that all clients have been bound to it and have reached it from their ports.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    sliced_service::{Seen, SlicedService, all_in, everywhere},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;

use super::{TARGETS, values};
use crate::source_ports;

pub(crate) const CASE: Case = Case {
    id: "terminating-not-preferred",
    area: super::AREA,
    claims: &["terminating-not-preferred"],
    sentence: "a terminating endpoint gets no new connection while a ready one exists, whatever clients had before",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
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

/// What could lead a client to the endpoint all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Chance,
    Affinity,
    /// A new connection from the source port of a closed one.
    SourcePort,
    /// The ready endpoints of other nodes are out of scope.
    Policy,
}

const WAYS: [(&str, By); 4] = [
    ("plain", By::Chance),
    ("session affinity", By::Affinity),
    ("reused source ports", By::SourcePort),
    ("policy Local", By::Policy),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with one endpoint, and one on another node under policy Local");
    let namespace = cx.namespace().await?;
    let nodes = cx.nodes();
    let placed = [
        ("draining", nodes[0].as_str()),
        ("b1", nodes[0].as_str()),
        ("b2", nodes[1].as_str()),
    ];
    let all = frontends::serving_on(cx, &namespace, &placed, &TARGETS, &TARGETS).await?;
    let (draining, ready) = all.split_at(1);
    let mut services = Vec::new();
    let ways = cx.axes().choose(WAYS.to_vec(), |(way, _)| (*way).to_owned());
    for family in cx.families() {
        for ((way, by), target) in ways.iter().zip(TARGETS) {
            let mut values = values(&namespace, way, family, target);
            match by {
                By::Affinity => values["affinity"] = "ClientIP".into(),
                By::Policy => values["policy"] = "Local".into(),
                By::Chance | By::SourcePort => {}
            }
            let elsewhere = if *by == By::Policy {
                &ready[1..]
            } else {
                &ready[..0]
            };
            let listed = all_in(draining, Condition::Ready).chain(all_in(elsewhere, Condition::Ready));
            let axis = format!("{family}, {way}");
            services.push((
                SlicedService::create(cx, &axis, family, values, listed).await?,
                *by,
            ));
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let before = |by: By, node: usize| match (by, node) {
        (By::Policy, 1) => Seen::All(&ready[1..]),
        _ => Seen::All(draining),
    };
    let control = seen_by_nodes(cx, &services, before)?;
    control.control(cx, "the endpoint serves", within).await?;
    let reused = services.iter().filter(|(_, by)| *by == By::SourcePort);
    let reused: Vec<&SlicedService> = reused.map(|(service, _)| service).collect();
    let first = everywhere(cx, reused.iter().copied(), Seen::All(draining))?.only(Transport::Tcp);
    // Twice the longest that one may take: N of each are soon made.
    let first = first
        .start_from(cx, source_ports::TERMINATING, cx.limits().probe * 2)
        .await?;
    first.hold(cx).await?;

    cx.phase("fault: it terminates, and others are ready");
    for (service, _) in &services {
        let listed = all_in(draining, Condition::Draining).chain(all_in(ready, Condition::Ready));
        service.list(cx, listed).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: the ready ones serve, for the hold time");
    let after = |by: By, node: usize| match by {
        By::Policy => Seen::All(&ready[node..=node]),
        By::Affinity => Seen::OneOf(ready),
        By::Chance | By::SourcePort => Seen::All(ready),
    };
    let exact = seen_by_nodes(cx, &services, after)?;
    exact.judge(cx, within).await?;
    let again = everywhere(cx, reused, Seen::All(ready))?.only(Transport::Tcp);
    let again = again
        .start_from(cx, source_ports::TERMINATING, cx.limits().hold)
        .await?;
    let held = exact.steadily(cx, cx.limits().hold).await?;
    futures::try_join!(again.hold(cx), held.hold(cx))?;
    Ok(())
}

/// What clients of each of two nodes see of each Service, by its number.
fn seen_by_nodes<'a>(
    cx: &Context,
    services: &[(SlicedService, By)],
    seen: impl Fn(By, usize) -> Seen<'a>,
) -> Result<Vantages, Halt> {
    let mut all = Vec::new();
    for (service, by) in services {
        for (number, node) in cx.nodes().iter().take(2).enumerate() {
            all.extend(service.at_node(cx, node, seen(*by, number))?);
        }
    }
    Ok(all.into_iter().collect())
}
