//! `agent-start-with-stale-vip`: the agent is down while the address of the only API server changes. When it starts, it
//! reaches the API through its documented further addresses, and a canary takes effect within the recovery limit,
//! although its kernel state names the old address.
//!
//! The old address answers nothing: its API server is killed and stays down. The new API server was down as long as the
//! agent ran. The list of further addresses is recorded.
use std::time::Duration;

use cluster::{ApiEndpoint, ApiFault, ApiServer, Capability, LONGEST, Stop};
use faults::StoppedAgent;
use harness::{
    agents,
    api_faults::{self, LeasedFault},
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
};

use super::api_endpoint::{AgentUnderTest, ApiService, Canary, Frontend, node};

pub(crate) const CASE: Case = Case {
    id: "agent-start-with-stale-vip",
    area: super::AREA,
    claims: &["agent-start-with-stale-vip"],
    sentence: "an agent starts although the node's kernel still translates the address of its API server to a former one",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[
            Capability::ApiServers,
            Capability::ApiFaults,
            Capability::SharedAddress,
        ],
        target: &[OfTarget::ServiceWay, OfTarget::FurtherAddresses],
    },
    disruptive: true,
    manifest: include_str!("api_endpoint.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const AXIS: &str = "the API server's address changes while the agent is down";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with the only API server as its backend");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    let servers = cx.cluster().control_plane()?.servers().await?;
    let [old, new, ..] = servers.as_slice() else {
        return Err(Halt::Inconclusive(format!(
            "two API servers are needed, found {servers:?}"
        )));
    };
    let api = ApiService::stage(cx, &namespace, Frontend::ClusterIp, &node).await?;
    let mut canary = Canary::stage(cx, &namespace, api.family, &node).await?;
    fence::pass(cx).await?;
    let new_down = kill(cx, new).await?;
    let to = ApiEndpoint {
        server: api.address,
        further: vec![new.address],
    };
    let agent = AgentUnderTest::redirect(cx, &node, &to, &mut canary, &[AXIS]).await?;
    cx.axes().not_enabled(
        "with further addresses switched off",
        "what an agent has learned by itself is no setting, and no other source has the new address",
    );
    cx.record("further addresses", format!("{:?}", to.further));

    cx.phase("fault: the agent is down while the address changes");
    let before = cx.cluster().agents()?.state(&node).await?;
    let killed = StoppedAgent::stop(cx.faults(), &node, Stop::Kill).await?;
    cx.fault(&format!("agent of {node} killed, process {:?}", before.pid));
    // Only the agent is to be without an API server.
    new_down.heal().await?;
    let old_down = kill(cx, old).await?;
    let moved = api.list(cx, new.address).await?;
    let within = Within::from(moved.at, cx.limits().endpoints);
    // The old address refuses, or answers nothing outside its network.
    let gone = [api.is_dead(AXIS)];
    probing::witness(
        cx,
        "the node's kernel state still translates to the old address",
        &cx.clients().on(&node),
        &gone,
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
    old_down.heal().await?;
    agent.back(cx).await
}

async fn kill(cx: &Context, server: &ApiServer) -> Result<LeasedFault, Halt> {
    let fault = ApiFault::Down {
        server: server.number,
        how: Stop::Kill,
    };
    api_faults::begin(cx, &fault, LONGEST).await
}
