//! The agent that reaches the API through a Service of the case, and its connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::Canary;
use cluster::{AgentState, ApiEndpoint};
use faults::{Connections, FaultError, RedirectedAgent};
use harness::{
    agents, api_cut,
    context::Context,
    probing,
    verdict::Halt,
    waiting::{Within, eventually, has_lasted},
};

/// How long its Service has no backend, at least, as the claims name it.
pub(in crate::b_apiserver) const EMPTY: Duration = Duration::from_secs(5);

/// The agent of a node that reaches the API through a Service of the case.
pub(in crate::b_apiserver) struct AgentUnderTest {
    fault: RedirectedAgent,
    pub(in crate::b_apiserver) node: String,
    /// All agents as they were after it was redirected.
    agents: Option<BTreeMap<String, AgentState>>,
    process: u32,
    /// Remote addresses of its connections: the frontends that it dials, and API servers, where the socket has those.
    to: Vec<SocketAddr>,
}

/// Connections that were reset, and the node's count of failed dials at that time.
pub(in crate::b_apiserver) struct Reset {
    gone: BTreeSet<SocketAddr>,
    failed: u64,
}

impl Reset {
    /// The connections that it had before the API server ended them.
    pub(in crate::b_apiserver) fn of(had: Connections) -> Self {
        Self {
            gone: had.established,
            failed: had.failed,
        }
    }
}

impl AgentUnderTest {
    /// Redirects it. On return it has a connection, and the canary has taken effect on every axis.
    pub(in crate::b_apiserver) async fn redirect(
        cx: &Context,
        node: &str,
        endpoint: &ApiEndpoint,
        canary: &mut Canary,
        axes: &[&str],
    ) -> Result<Self, Halt> {
        cx.phase(&format!(
            "the agent of {node} is redirected to the API endpoint {}",
            endpoint.server
        ));
        let before = cx.cluster().agents()?.state(node).await?;
        let within = Within::from_now(cx.limits().heal);
        let fault = RedirectedAgent::redirect(cx.faults(), node, endpoint).await?;
        cx.fault(&format!("the agent of {node} is redirected to {endpoint:?}"));
        agents::ready(cx, node, &before, within).await?;
        let configured: Vec<SocketAddr> = [endpoint.server]
            .iter()
            .chain(&endpoint.further)
            .copied()
            .collect();
        let to = ends(cx, &configured).await?;
        let (agents, process) = running(cx, node).await?;
        let agent = Self {
            fault,
            node: node.to_owned(),
            agents,
            process,
            to,
        };
        let what = format!("the agent of {node} has a connection to the API");
        eventually(&what, within, async || {
            let found = agent.connections(cx).await?;
            Ok((!found.established.is_empty()).then_some(()))
        })
        .await?;
        canary.turn(cx).await?;
        let targets: Vec<_> = axes.iter().flat_map(|axis| canary.targets(axis)).collect();
        probing::control(
            cx,
            "the canary takes effect through this endpoint",
            &cx.clients().on(node),
            &targets,
            within,
        )
        .await?;
        Ok(agent)
    }

    /// Its current connections to the API; none, if it has ended, which [`AgentUnderTest::not_restarted`] judges.
    pub(in crate::b_apiserver) async fn connections(&self, cx: &Context) -> Result<Connections, Halt> {
        let found = Connections::of(cx.cluster(), &self.node, self.process, &self.to).await;
        self.or_ended(cx, found).await
    }

    async fn or_ended(
        &self,
        cx: &Context,
        found: Result<Connections, FaultError>,
    ) -> Result<Connections, Halt> {
        match found {
            Err(error) if cx.cluster().agents()?.state(&self.node).await?.pid == Some(self.process) => {
                Err(error.into())
            }
            found => Ok(found.unwrap_or_default()),
        }
    }

    /// Resets its connections, so that it must dial again. If it has none now, it has lost them by itself since it was
    /// redirected, and must dial all the same.
    pub(in crate::b_apiserver) async fn reset(&self, cx: &Context) -> Result<Reset, Halt> {
        let found = Connections::reset(cx.cluster(), &self.node, self.process, &self.to).await;
        let found = self.or_ended(cx, found).await?;
        cx.fault(&format!(
            "connections of the agent of {} to the API reset: {:?}",
            self.node, found.established
        ));
        Ok(Reset::of(found))
    }

    /// Witness: it had to dial again. Its old connections are gone, and after [`EMPTY`] it has others, from other
    /// ports, or none, so that everything that it dialled failed. Which of the two is recorded.
    pub(in crate::b_apiserver) async fn dials_again(
        &self,
        cx: &Context,
        axis: &str,
        reset: &Reset,
        since: Instant,
    ) -> Result<(), Halt> {
        let within = Within::from(since, cx.limits().endpoints);
        eventually("the connections that were reset are gone", within, async || {
            let found = self.connections(cx).await?;
            Ok(found.established.is_disjoint(&reset.gone).then_some(()))
        })
        .await?;
        has_lasted(since, EMPTY).await;
        let found = self.connections(cx).await?;
        let how = if found.established.is_empty() {
            "it has no connection: everything that it dialled failed".to_owned()
        } else {
            let ports: BTreeSet<u16> = found.established.iter().map(SocketAddr::port).collect();
            format!("it has dialled again, from {ports:?}")
        };
        let failed = found.failed.saturating_sub(reset.failed);
        cx.record(&format!("{axis}: {EMPTY:?} after its Service was emptied"), how);
        cx.record(
            &format!("{axis}: dials of its node that failed on the wire by then"),
            failed.to_string(),
        );
        Ok(())
    }

    /// Verdict: no agent has ended or was started since it was redirected.
    pub(in crate::b_apiserver) async fn not_restarted(&self, cx: &Context, axis: &str) -> Result<(), Halt> {
        agents::no_restart(cx, axis, self.agents.as_ref()).await
    }

    /// Gives it back its API endpoint.
    pub(in crate::b_apiserver) async fn back(self, cx: &Context) -> Result<(), Halt> {
        cx.phase(&format!(
            "the API endpoint of the agent of {} is given back",
            self.node
        ));
        Ok(self.fault.heal().await?)
    }
}

async fn running(cx: &Context, node: &str) -> Result<(Option<BTreeMap<String, AgentState>>, u32), Halt> {
    let agents = agents::all(cx).await?;
    let process = agents.as_ref().and_then(|agents| agents.get(node)?.pid);
    let process = process.ok_or_else(|| Halt::Inconclusive(format!("the agent of {node} does not run")))?;
    Ok((agents, process))
}

/// All remote addresses that connections of an agent to the API may have: its configured frontends, all API servers,
/// and the endpoints of `default/kubernetes`, which it may have learned.
pub(in crate::b_apiserver) async fn ends(
    cx: &Context,
    configured: &[SocketAddr],
) -> Result<Vec<SocketAddr>, Halt> {
    let mut ends = api_cut::servers(cx).await?;
    ends.extend(configured);
    ends.sort_unstable();
    ends.dedup();
    Ok(ends)
}
