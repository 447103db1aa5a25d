//! What a recovery needs, watched from before a fault to the verdict.
//!
//! A case that ends an agent, leaves something in the way of the next, and starts that one, says so in three places:
//! [`Recovering::begin`] before the fault, [`Recovering::start`] for the start, [`Recovering::end`] when what it is about
//! has been judged and before it takes anything of the fault away. What was needed meanwhile goes into its report
//! ([`Needed`]) and is no part of its own verdict: a row of the catalogue is judged over all such cases.
//!
//! `connections.rs`: connections through the start.
mod connections;

use std::{future::Future, time::Instant};

use cluster::AgentState;
use faults::{FaultError, boot_id};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use self::connections::{Connections, SHOWN};
use crate::{
    agents,
    context::Context,
    history::now_us,
    report::{AxisReport, Needed, overall},
    requests::refused,
    time_spent::Activity,
    verdict::{Halt, Verdict},
    waiting::{Within, has_lasted},
};

/// A recovery that is watched.
#[must_use = "a recovery that is not ended is recorded nowhere"]
pub struct Recovering {
    node: String,
    before: AgentState,
    boot: String,
    was_cordoned: bool,
    connections: Connections,
    started_us: Option<u64>,
}

/// An agent that was started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// When it said that it is ready; `None`: not within T_heal.
    pub ready: Option<Instant>,
    /// T_heal, from then on; for one that never is ready, from its start: it has had its time.
    pub healing: Within,
}

impl Recovering {
    /// Begins to watch what the recovery of a node needs from a fault that has not been made yet; its agent runs. Connections
    /// are open when this returns.
    ///
    /// # Errors
    /// The node can't be looked at.
    pub async fn begin(cx: &Context, node: &str) -> Result<Self, Halt> {
        Ok(Self {
            node: node.to_owned(),
            connections: Connections::open(cx, node).await?,
            before: agents::state(cx, node).await?,
            boot: boot_id(cx.cluster(), node).await?,
            was_cordoned: is_cordoned(cx, node).await?,
            started_us: None,
        })
    }

    /// Starts the agent, and returns when it is ready, with what `start` gave. Before that the connections show which of
    /// them are healthy.
    ///
    /// # Errors
    /// Inconclusive if no new agent runs at the end of T_heal.
    pub async fn start<T>(
        &mut self,
        cx: &Context,
        start: impl Future<Output = Result<T, FaultError>>,
    ) -> Result<(T, Started), Halt> {
        let _spent = cx.clock().during(Activity::Healing);
        has_lasted(Instant::now(), SHOWN).await;
        let started = Within::from_now(cx.limits().heal);
        self.started_us = Some(now_us());
        let given = start.await?;
        let ready = agents::ready(cx, &self.node, &self.before, started).await?;
        match ready {
            Some(ready) => cx.record_delay(
                "the agent is ready",
                ready.duration_since(started.since),
                started.limit,
            ),
            None => cx.record("the agent is ready", format!("not within {:?}", started.limit)),
        }
        let healing = ready.map_or(started, |ready| Within::from(ready, cx.limits().heal));
        Ok((given, Started { ready, healing }))
    }

    /// These axes have been judged as far as they can be without taking anything of the fault away: records what that
    /// needed.
    ///
    /// # Errors
    /// The node can't be looked at, or a probe client has ended.
    pub async fn end(self, cx: &Context, axes: &[&str]) -> Result<(), Halt> {
        let so_far = axes
            .iter()
            .map(|axis| AxisReport::new(*axis, cx.axes().so_far(axis), Vec::new()));
        let unaided = overall(&so_far.collect::<Vec<_>>());
        self.record(cx, axes.join(", "), unaided).await
    }

    /// What is permitted has been judged, and it is no recovery: the suite will have to do this by hand.
    ///
    /// # Errors
    /// As of [`Recovering::end`].
    pub async fn end_by_hand(self, cx: &Context, axis: &str, why: &str) -> Result<(), Halt> {
        let unaided = Verdict::Fail { why: why.to_owned() };
        self.record(cx, axis.to_owned(), unaided).await
    }

    async fn record(self, cx: &Context, from: String, unaided: Verdict) -> Result<(), Halt> {
        let started_us = self
            .started_us
            .ok_or_else(|| Halt::Harness(format!("{from}: a recovery ended before the agent was started")))?;
        let fate = self.connections.end(cx, started_us).await?;
        let after = agents::state(cx, &self.node).await?;
        let needed = Needed {
            from,
            boots: [self.boot, boot_id(cx.cluster(), &self.node).await?],
            cordoned: self.was_cordoned || is_cordoned(cx, &self.node).await?,
            starts: after.starts.saturating_sub(self.before.starts),
            node: self.node,
            unaided,
            healthy: fate.healthy,
            connections: fate.findings,
        };
        cx.record_recovery(needed);
        Ok(())
    }
}

/// Whether a node is cordoned, with which every drain begins.
async fn is_cordoned(cx: &Context, node: &str) -> Result<bool, Halt> {
    let nodes: Api<Node> = Api::all(cx.cluster().client());
    let read = nodes.get(node).await;
    let node = read.map_err(|error| refused("read a Node", error))?;
    Ok(node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default())
}
