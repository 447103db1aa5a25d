//! `returning-endpoint-active`: an endpoint is terminating when the agents are restarted, and then turns ready again,
//! at the same address and port. It serves within the endpoint propagation limit, with no further write: beside others,
//! and as the only local one under policy `Local`.
//!
//! Agents that restore their state from the kernel find an endpoint there that takes no new connections.
use std::time::Duration;

use harness::{
    agents::Killed,
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    pods::Backend,
    sliced_service::{Seen, SlicedService, all_in},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
    write_effect::Effect,
};

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "returning-endpoint-active",
    area: super::AREA,
    claims: &["returning-endpoint-active"],
    sentence: "an endpoint that was terminating when the agent restarted serves again once it is ready",
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
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// The policy of the Service, and the condition of the endpoint while agents restart.
#[derive(Clone, Copy, Debug)]
struct Shape {
    name: &'static str,
    policy: &'static str,
    meanwhile: Condition,
}

impl Shape {
    const ALL: [Self; 4] = [
        Self::new("draining", "Cluster", Condition::Draining),
        Self::new("not serving", "Cluster", Condition::Stopped),
        Self::new("draining, policy Local", "Local", Condition::Draining),
        Self::new("not serving, policy Local", "Local", Condition::Stopped),
    ];

    const fn new(name: &'static str, policy: &'static str, meanwhile: Condition) -> Self {
        Self {
            name,
            policy,
            meanwhile,
        }
    }

    fn is_local(self) -> bool {
        self.policy == "Local"
    }

    /// What clients see while it is terminating, and which claim says so; none where it is still the last resort of its
    /// node.
    fn meanwhile<'a>(self, others: &'a [Backend]) -> Option<(Effect, Seen<'a>)> {
        match (self.is_local(), self.meanwhile) {
            (false, _) => Some((Effect::Left, Seen::All(others))),
            (true, Condition::Draining) => None,
            (true, _) => Some((Effect::Emptied, Seen::Nothing)),
        }
    }
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with two endpoints, and under policy Local with one");
    let namespace = cx.namespace().await?;
    let nodes = cx.nodes();
    let all = frontends::serving(cx, &namespace, &["returning", "other"], &TARGETS, &TARGETS).await?;
    let (returning, others) = all.split_at(1);
    let (mut services, mut serving) = (Vec::new(), Vec::new());
    let shapes = cx
        .axes()
        .choose(Shape::ALL.to_vec(), |shape| shape.name.to_owned());
    for family in cx.families() {
        for (shape, target) in shapes.iter().zip(TARGETS) {
            let mut values = values(&namespace, shape.name, family, target);
            values["policy"] = shape.policy.into();
            let beside = if shape.is_local() { &others[..0] } else { others };
            let axis = format!("{family}, {}", shape.name);
            let listed = all_in(returning, Condition::Ready).chain(all_in(beside, Condition::Ready));
            let made = SlicedService::create(cx, &axis, family, values, listed).await?;
            for (number, node) in nodes.iter().enumerate() {
                let seen = match (shape.is_local(), number) {
                    (false, _) => Seen::All(&all),
                    (true, 0) => Seen::All(returning),
                    (true, _) => Seen::Nothing,
                };
                serving.extend(made.at_node(cx, node, seen)?);
            }
            services.push((made, *shape, beside));
        }
    }
    let serving: Vantages = serving.into_iter().collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    serving.control(cx, "all endpoints serve", within).await?;

    cx.phase("fault: one is terminating, and the agents restart");
    for (service, shape, beside) in &services {
        let terminating = all_in(returning, shape.meanwhile);
        service
            .list(cx, terminating.chain(all_in(beside, Condition::Ready)))
            .await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    for effect in [Effect::Left, Effect::Emptied] {
        let mut met = Vec::new();
        for (service, shape, beside) in &services {
            let seen = shape.meanwhile(beside).filter(|(which, _)| *which == effect);
            if let Some((_, seen)) = seen {
                met.extend(service.dialled(cx, cx.clients().to_vec(), &nodes, seen)?);
            }
        }
        let met: Vantages = met.into_iter().collect();
        met.takes_effect(
            cx,
            effect,
            "a terminating endpoint gets no new connection",
            within,
        )
        .await?;
    }
    Killed::kill(cx, &cx.nodes()).await?.start(cx).await?;
    fence::pass(cx).await?;

    cx.phase("verdict: it is ready again, and serves");
    for (service, _, beside) in &services {
        let ready = all_in(returning, Condition::Ready);
        service
            .list(cx, ready.chain(all_in(beside, Condition::Ready)))
            .await?;
    }
    // No fence: its writes would be further ones.
    serving.judge(cx, Within::from_now(cx.limits().endpoints)).await?;
    Ok(())
}
