//! `agent-own-vip-clusterip`: the agent reaches the API through the ClusterIP of `default/kubernetes`. Its
//! EndpointSlice is emptied for at least 5 s, the agent's API connections are reset so that it must dial again, and the
//! EndpointSlice is refilled with (i) the same, (ii) another address. A canary written after the refill takes effect on
//! that node within the recovery limit, without a restart.
//!
//! All API servers are killed while the EndpointSlice is empty: that resets all connections, and whatever an agent
//! dials meanwhile fails, its Service or an address that it remembers. (ii) is for targets that document further
//! addresses, and needs two API servers: in the second run only the other one starts again.
use std::time::Duration;

use cluster::{ApiEndpoint, ApiFault, ApiServer, Capability, LONGEST, Stop};
use harness::{
    api_faults::{self, LeasedFault},
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
};

use super::{
    api_endpoint::{AgentUnderTest, Canary, EMPTY, Reset, node},
    kubernetes::Kubernetes,
};

pub(crate) const CASE: Case = Case {
    id: "agent-own-vip-clusterip",
    area: super::AREA,
    claims: &["agent-own-vip-clusterip"],
    sentence: "an agent that reaches the API through default/kubernetes reconnects after its EndpointSlice was emptied",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[
            Capability::ApiServers,
            Capability::ApiFaults,
            Capability::Unreconciled,
        ],
        target: &[OfTarget::ServiceWay],
    },
    disruptive: true,
    manifest: include_str!("api_endpoint.yaml"),
    longest: Duration::from_secs(500),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const SAME: &str = "refilled with the same address";
const ANOTHER: &str = "refilled with another address";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: default/kubernetes is the case's own");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    let kubernetes = Kubernetes::take(cx).await?;
    let mut canary = Canary::stage(cx, &namespace, kubernetes.family, &node).await?;
    fence::pass(cx).await?;
    let servers = cx.cluster().control_plane()?.servers().await?;
    let mut axes = vec![SAME];
    if !cx.cluster().describe().ways.further {
        cx.axes().not_enabled(
            ANOTHER,
            "not supported: the target documents no further addresses",
        );
    } else if servers.len() < 2 {
        cx.axes()
            .not_enabled(ANOTHER, "there is one API server, and so no other address");
    } else {
        axes.push(ANOTHER);
    }
    for axis in cx.axes().choose(axes, |axis| (*axis).to_owned()) {
        match servers.as_slice() {
            [first, second, ..] if axis == ANOTHER => {
                another(cx, &kubernetes, &mut canary, &node, [first, second]).await?;
            }
            all => same(cx, &kubernetes, &mut canary, &node, all).await?,
        }
    }
    kubernetes.give_back(cx).await
}

async fn same(
    cx: &Context,
    kubernetes: &Kubernetes,
    canary: &mut Canary,
    node: &str,
    servers: &[ApiServer],
) -> Result<(), Halt> {
    let to = ApiEndpoint {
        server: kubernetes.address,
        further: Vec::new(),
    };
    let agent = AgentUnderTest::redirect(cx, node, &to, canary, &[SAME]).await?;
    let down = empty(cx, SAME, kubernetes, &agent, servers).await?;

    cx.phase(&format!(
        "{SAME}: the API servers run again, and the EndpointSlice is refilled"
    ));
    for server in down {
        server.heal().await?;
    }
    let filled = kubernetes.list_again(cx).await?;
    let within = Within::from(filled.at, cx.limits().heal);
    canary.judge(cx, SAME, node, within).await?;
    agent.not_restarted(cx, SAME).await?;
    agent.back(cx).await
}

async fn another(
    cx: &Context,
    kubernetes: &Kubernetes,
    canary: &mut Canary,
    node: &str,
    [first, second]: [&ApiServer; 2],
) -> Result<(), Halt> {
    let second_down = kill(cx, second).await?;
    kubernetes.list_servers(cx, &[first.address]).await?;
    let to = ApiEndpoint {
        server: kubernetes.address,
        further: vec![second.address],
    };
    let agent = AgentUnderTest::redirect(cx, node, &to, canary, &[ANOTHER]).await?;
    let first_down = empty(cx, ANOTHER, kubernetes, &agent, std::slice::from_ref(first)).await?;

    cx.phase(&format!(
        "{ANOTHER}: the other API server runs, and the EndpointSlice lists it"
    ));
    second_down.heal().await?;
    let filled = kubernetes.list_servers(cx, &[second.address]).await?;
    let within = Within::from(filled.at, cx.limits().heal);
    canary.judge(cx, ANOTHER, node, within).await?;
    agent.not_restarted(cx, ANOTHER).await?;
    for server in first_down {
        server.heal().await?;
    }
    agent.back(cx).await
}

/// Empties the EndpointSlice and kills these API servers. The agent has lost its connections, and has found no other
/// server, until the EndpointSlice has been empty for long enough.
async fn empty(
    cx: &Context,
    axis: &str,
    kubernetes: &Kubernetes,
    agent: &AgentUnderTest,
    servers: &[ApiServer],
) -> Result<Vec<LeasedFault>, Halt> {
    cx.phase(&format!("{axis}: emptied, and the API servers are killed"));
    let before = agent.connections(cx).await?;
    let emptied = kubernetes.empty(cx).await?;
    // Before it loses its connections.
    fence::pass_on(cx, std::slice::from_ref(&agent.node)).await?;
    let mut down = Vec::new();
    for server in servers {
        down.push(kill(cx, server).await?);
    }
    let reset = Reset::of(before);
    agent.dials_again(cx, axis, &reset, emptied.at).await?;
    let found = agent.connections(cx).await?;
    if !found.established.is_empty() {
        return Err(Halt::Inconclusive(format!(
            "the agent has connections {:?} to the API though no API server runs: no dial was seen to fail for {EMPTY:?}",
            found.established
        )));
    }
    Ok(down)
}

async fn kill(cx: &Context, server: &ApiServer) -> Result<LeasedFault, Halt> {
    let fault = ApiFault::Down {
        server: server.number,
        how: Stop::Kill,
    };
    api_faults::begin(cx, &fault, LONGEST).await
}
