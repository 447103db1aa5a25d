//! `agent-own-vip-nodeport`: the agent reaches the API by a node address and the node port of a Service. The slice is
//! emptied for ≥ 5 s, the agent's API connections are reset, the slice is refilled: a canary slice written after the refill
//! takes effect on that node within T_heal, without a restart.
//!
//! The node port of the agent's own node and of another node, each in its own run: only the first is translated on its node.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    effect::{self, Effect},
    fence,
    of_target::OfTarget,
    probing,
    verdict::Halt,
    waiting::Within,
};

use super::own_way::{Canary, Frontend, Led, Way, node};

pub(crate) const CASE: Case = Case {
    id: "agent-own-vip-nodeport",
    area: "B default/kubernetes and the agent's own way to the API",
    claims: &["agent-own-vip-nodeport"],
    sentence: "an agent that reaches the API by a node port reconnects after the Service behind it was emptied",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::ApiServers],
        target: &[OfTarget::ServiceWay],
    },
    disruptive: true,
    manifest: include_str!("own_way.yaml"),
    longest: Duration::from_secs(500),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = node(cx)?;
    let other = cx.nodes().into_iter().find(|other| *other != node);
    let mut runs = vec![("its own node's port".to_owned(), node.clone())];
    runs.extend(other.map(|other| ("another node's port".to_owned(), other)));
    for (axis, of) in cx.axes().choose(runs, |(axis, _)| axis.clone()) {
        one(cx, &axis, &node, &of).await?;
    }
    Ok(())
}

async fn one(cx: &Context, axis: &str, node: &str, of: &str) -> Result<(), Halt> {
    cx.phase(&format!("{axis}: staging a Service that leads to the API server"));
    let namespace = cx.namespace().await?;
    let way = Way::stage(cx, &namespace, Frontend::NodePort, of).await?;
    let mut canary = Canary::stage(cx, &namespace, way.family, node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: way.address,
        further: Vec::new(),
    };
    let led = Led::lead(cx, node, &to, &mut canary, &[axis]).await?;

    cx.phase(&format!("{axis}: emptied, and the agent's connections are reset"));
    let others = cx.clients().on(node);
    let refuses = [way.refuses(axis)];
    let emptied = way.empty(cx).await?;
    let within = Within::from(emptied.at, cx.limits().endpoints);
    let (effect, what) = (Effect::Emptied, "others see that it is empty");
    effect::takes_effect(cx, effect, what, &others, &refuses, within).await?;
    let reset = led.reset(cx).await?;
    led.dials_anew(cx, axis, &reset, emptied.at).await?;
    probing::judge(cx, &others, &refuses, Within::from_now(cx.limits().endpoints)).await?;

    cx.phase(&format!("{axis}: refilled"));
    let filled = way.list(cx, way.server).await?;
    let within = Within::from(filled.at, cx.limits().heal);
    canary.judge(cx, axis, node, within).await?;
    led.not_restarted(cx, axis).await?;
    led.back(cx).await
}
