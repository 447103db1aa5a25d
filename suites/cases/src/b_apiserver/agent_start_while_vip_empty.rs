//! `agent-start-while-vip-empty`: the kernel state of the agent's last run has no backend for its own API endpoint, and
//! the agent is killed. It starts, and a canary takes effect within the recovery limit after an API server answers at
//! its real address.
//!
//! The EndpointSlice is full again before the agent starts, which nothing on the node has seen: a probe is still
//! refused.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability, Stop};
use faults::StoppedAgent;
use harness::{
    agents,
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
    id: "agent-start-while-vip-empty",
    area: super::AREA,
    claims: &["agent-start-while-vip-empty"],
    sentence: "an agent starts although the node's kernel still drops the address of its API server",
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
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const AXIS: &str = "killed while its Service was empty";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with the API server as its backend");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    let api = ApiService::stage(cx, &namespace, Frontend::ClusterIp, &node).await?;
    let mut canary = Canary::stage(cx, &namespace, api.family, &node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: api.address,
        further: Vec::new(),
    };
    let agent = AgentUnderTest::redirect(cx, &node, &to, &mut canary, &[AXIS]).await?;
    let others = cx.clients().on(&node);
    let refuses = [api.refuses(AXIS)];

    cx.phase("fault: the Service is emptied, and the agent killed");
    let emptied = api.empty(cx).await?;
    let within = Within::from(emptied.at, cx.limits().endpoints);
    let (effect, what) = (Effect::Emptied, "others see that it is empty");
    write_effect::takes_effect(cx, effect, what, &others, &refuses, within).await?;
    let before = cx.cluster().agents()?.state(&node).await?;
    let killed = StoppedAgent::stop(cx.faults(), &node, Stop::Kill).await?;
    cx.fault(&format!("agent of {node} killed, process {:?}", before.pid));
    let filled = api.list(cx, api.server).await?;
    let within = Within::from(filled.at, cx.limits().endpoints);
    probing::witness(
        cx,
        "the node's kernel state has no backend for the endpoint",
        &others,
        &refuses,
        within,
    )
    .await?;

    cx.phase("the agent starts");
    let within = Within::from_now(cx.limits().heal);
    killed.start().await?;
    canary.judge(cx, AXIS, &node, within).await?;
    // Packets decide, and only a new process may have made them succeed.
    if let Some(ready) = agents::ready(cx, &node, &before, within).await? {
        cx.record_delay(
            "the agent is ready again",
            ready.duration_since(within.since),
            within.limit,
        );
    }
    agent.back(cx).await
}
