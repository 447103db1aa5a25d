//! `agent-start-while-vip-empty`: kernel state from the last run maps the agent's own API VIP to nothing; the agent is
//! killed. It starts, and a canary takes effect within T_heal after an API server answers at its real address.
//!
//! The slice is full again before the agent starts, which nobody on the node has seen: a probe of the VIP is still REFUSE.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability, Stop};
use faults::StoppedAgent;
use harness::{
    agents,
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
    id: "agent-start-while-vip-empty",
    area: "B default/kubernetes and the agent's own way to the API",
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
    manifest: include_str!("own_way.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const AXIS: &str = "killed while its Service was empty";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service that leads to the API server");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    let way = Way::stage(cx, &namespace, Frontend::ClusterIp, &node).await?;
    let mut canary = Canary::stage(cx, &namespace, way.family, &node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: way.address,
        further: Vec::new(),
    };
    let led = Led::lead(cx, &node, &to, &mut canary, &[AXIS]).await?;
    let others = cx.clients().on(&node);
    let refuses = [way.refuses(AXIS)];

    cx.phase("fault: the Service is emptied, and the agent killed");
    let emptied = way.empty(cx).await?;
    let within = Within::from(emptied.at, cx.limits().endpoints);
    let (effect, what) = (Effect::Emptied, "others see that it is empty");
    effect::takes_effect(cx, effect, what, &others, &refuses, within).await?;
    let before = cx.cluster().agents()?.state(&node).await?;
    let killed = StoppedAgent::stop(cx.faults(), &node, Stop::Kill).await?;
    cx.fault(&format!("agent of {node} killed, process {:?}", before.pid));
    let filled = way.list(cx, way.server).await?;
    let within = Within::from(filled.at, cx.limits().endpoints);
    probing::witness(
        cx,
        "what the node's kernel has is in the way",
        &others,
        &refuses,
        within,
    )
    .await?;

    cx.phase("the agent starts");
    let within = Within::from_now(cx.limits().heal);
    killed.start().await?;
    canary.judge(cx, AXIS, &node, within).await?;
    // Judged by what packets met; but it must be a new process that did it.
    if let Some(ready) = agents::ready(cx, &node, &before, within).await? {
        cx.record_delay("the agent is ready again", ready.duration_since(within.since));
    }
    led.back(cx).await
}
