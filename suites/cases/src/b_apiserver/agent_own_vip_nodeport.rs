//! `agent-own-vip-nodeport`: the agent reaches the API through a node address and the node port of a Service. Its
//! EndpointSlice is emptied for at least 5 s, the agent's API connections are reset, and it is refilled: a canary
//! written after the refill takes effect on that node within the recovery limit, without a restart.
//!
//! One run uses the node port of the agent's own node, another that of another node: only the first is translated on
//! its node.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};

use super::api_endpoint::{AgentUnderTest, ApiService, Canary, Frontend, node};

pub(crate) const CASE: Case = Case {
    id: "agent-own-vip-nodeport",
    area: super::AREA,
    claims: &["agent-own-vip-nodeport"],
    sentence: "an agent that reaches the API through a node port reconnects after the Service behind it was emptied",
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
    manifest: include_str!("api_endpoint.yaml"),
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
    cx.phase(&format!(
        "{axis}: staging a Service with the API server as its backend"
    ));
    let namespace = cx.namespace().await?;
    let api = ApiService::stage(cx, &namespace, Frontend::NodePort, of).await?;
    let mut canary = Canary::stage(cx, &namespace, api.family, node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: api.address,
        further: Vec::new(),
    };
    let agent = AgentUnderTest::redirect(cx, node, &to, &mut canary, &[axis]).await?;

    cx.phase(&format!("{axis}: emptied, and the agent's connections are reset"));
    let others = cx.clients().on(node);
    let refuses = [api.refuses(axis)];
    let emptied = api.empty(cx).await?;
    let within = Within::from(emptied.at, cx.limits().endpoints);
    let (effect, what) = (Effect::Emptied, "others see that it is empty");
    write_effect::takes_effect(cx, effect, what, &others, &refuses, within).await?;
    let reset = agent.reset(cx).await?;
    agent.dials_again(cx, axis, &reset, emptied.at).await?;
    probing::judge(cx, &others, &refuses, Within::from_now(cx.limits().endpoints)).await?;

    cx.phase(&format!("{axis}: refilled"));
    let filled = api.list(cx, api.server).await?;
    let within = Within::from(filled.at, cx.limits().heal);
    canary.judge(cx, axis, node, within).await?;
    agent.not_restarted(cx, axis).await?;
    agent.back(cx).await
}
