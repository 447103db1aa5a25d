//! `terminating-drains-established`: TCP connections to a terminating endpoint carry data for a minute, until it leaves
//! the EndpointSlice: while others are ready, if it is the last one, if it does not serve any more, and with
//! `trafficDistribution`.
//!
//! From pods and hosts through the ClusterIP; and from outside through node ports, of its own node and of one that has
//! no backend and passes the connection on. All were opened while it was the only endpoint, so all are to it.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    sliced_service::{Seen, SlicedService, all_in, everywhere},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
    write_effect::Effect,
};
use oracle::history::Transport;

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "terminating-drains-established",
    area: super::AREA,
    claims: &["terminating-drains-established"],
    sentence: "connections to a terminating endpoint go on for a minute, until it leaves the EndpointSlice",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: GRACE,
    run: |cx| Box::pin(run(cx)),
};

/// How long it terminates, as pods with a long grace period do.
const GRACE: Duration = Duration::from_secs(60);
/// Connections of each client to each frontend.
const EACH: u32 = 1;

/// How the endpoint terminates.
#[derive(Clone, Copy, Debug)]
struct Shape {
    name: &'static str,
    becomes: Condition,
    /// Another one is ready, to which new connections go.
    has_another: bool,
    distribution: Option<&'static str>,
}

const SHAPES: [Shape; 4] = [
    Shape::new("others ready", Condition::Draining, true, None),
    Shape::new("the last one", Condition::Draining, false, None),
    Shape::new("the last one, not serving", Condition::Stopped, false, None),
    Shape::new(
        "trafficDistribution",
        Condition::Draining,
        true,
        Some("PreferClose"),
    ),
];

impl Shape {
    const fn new(
        name: &'static str,
        becomes: Condition,
        has_another: bool,
        distribution: Option<&'static str>,
    ) -> Self {
        Self {
            name,
            becomes,
            has_another,
            distribution,
        }
    }
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with one endpoint");
    let namespace = cx.namespace().await?;
    let node = &cx.nodes()[0];
    let placed = ["draining", "ready"].map(|name| (name, node.as_str()));
    let all = frontends::serving_on(cx, &namespace, &placed, &TARGETS, &TARGETS).await?;
    let (draining, ready) = all.split_at(1);
    let mut services = Vec::new();
    let shapes = cx.axes().choose(SHAPES.to_vec(), |shape| shape.name.to_owned());
    for family in cx.families() {
        for (shape, target) in shapes.iter().zip(TARGETS) {
            let mut values = values(&namespace, shape.name, family, target);
            values["distribution"] = shape.distribution.into();
            let axis = format!("{family}, {}", shape.name);
            let first = all_in(draining, Condition::Ready);
            services.push((
                SlicedService::create(cx, &axis, family, values, first).await?,
                *shape,
            ));
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let before = everywhere(
        cx,
        services.iter().map(|(service, _)| service),
        Seen::All(draining),
    )?;
    before.control(cx, "the endpoint serves", within).await?;
    let flows = before.only(Transport::Tcp).flows(cx, EACH, within).await?;

    cx.phase("fault: it terminates");
    let mut left = Vec::new();
    for (service, shape) in &services {
        let others = if shape.has_another { ready } else { &ready[..0] };
        let terminating = all_in(draining, shape.becomes);
        service
            .list(cx, terminating.chain(all_in(others, Condition::Ready)))
            .await?;
        if shape.has_another {
            left.extend(service.dialled(cx, cx.clients().to_vec(), &cx.nodes(), Seen::All(ready))?);
        }
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    let left: Vantages = left.into_iter().collect();
    let what = "new connections go to the ready endpoint";
    left.takes_effect(cx, Effect::Left, what, within).await?;

    cx.phase("verdict: its connections carry data for a minute");
    flows.hold(cx, GRACE).await?;
    Ok(())
}
