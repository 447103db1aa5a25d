//! What a recovery needs, watched from before a fault to the verdict.
//!
//! A case that ends an agent, leaves something in the way of the next, and starts that one, says so in three places:
//! [`Context::recovering`] before the fault, [`Recovering::start`] for the start, [`Recovering::end`] when what it is about
//! has been judged and before it takes anything of the fault away. What was needed meanwhile goes into its report
//! ([`Needed`]) and is no part of its own verdict: a row of the catalogue is judged over all such cases.
//!
//! - `needed.rs`: the record, and what it says. `connections.rs`: connections through the start.
mod connections;
mod needed;

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use cluster::AgentState;
use faults::{FaultError, boot_id};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::sync::OnceCell;

use self::connections::{Connections, SHOWN, Steady};
use crate::{
    context::Context,
    history::now_us,
    objects::refused,
    probing::Within,
    report::{AxisReport, overall},
    spent::Activity,
    verdict::{Halt, Verdict},
    waiting::has_lasted,
};

pub use self::needed::Needed;

/// What the recoveries of one case have in common.
#[derive(Default)]
pub(crate) struct Recoveries {
    /// Made for the first of them.
    steady: OnceCell<Vec<Steady>>,
    needed: Mutex<Vec<Needed>>,
}

/// A recovery that is watched.
#[must_use = "a recovery that nobody ends is recorded nowhere"]
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

impl Context {
    /// Begins to watch what the recovery of a node needs from a fault that has not been made yet; its agent runs. Connections
    /// are open when this returns.
    ///
    /// # Errors
    /// The node can't be looked at.
    pub async fn recovering(&self, node: &str) -> Result<Recovering, Halt> {
        let steady = self
            .recoveries
            .steady
            .get_or_try_init(|| Steady::make(self))
            .await?;
        Ok(Recovering {
            node: node.to_owned(),
            connections: Connections::open(self, steady, node).await?,
            before: self.cluster().agents()?.state(node).await?,
            boot: boot_id(self.cluster(), node).await?,
            was_cordoned: is_cordoned(self, node).await?,
            started_us: None,
        })
    }
}

impl Recovering {
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
        let _spent = cx.clock.during(Activity::Healing);
        has_lasted(Instant::now(), SHOWN).await;
        let started = Within::from_now(cx.limits().heal);
        self.started_us = Some(now_us());
        let given = start.await?;
        let ready = cx.agent_ready(&self.node, &self.before, started).await?;
        match ready {
            Some(ready) => cx.record_delay("the agent is ready", ready.duration_since(started.since)),
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
            .map(|axis| AxisReport::new(*axis, cx.axes.so_far(axis), Vec::new()));
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
        let after = cx.cluster().agents()?.state(&self.node).await?;
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
        let all = &cx.recoveries.needed;
        all.lock().unwrap_or_else(PoisonError::into_inner).push(needed);
        Ok(())
    }
}

impl Recoveries {
    /// What all of them needed, in their order.
    pub(crate) fn all(&self) -> Vec<Needed> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a node is cordoned, with which every drain begins.
async fn is_cordoned(cx: &Context, node: &str) -> Result<bool, Halt> {
    let nodes: Api<Node> = Api::all(cx.cluster().client());
    let read = nodes.get(node).await;
    let node = read.map_err(|error| refused("read a Node", error))?;
    Ok(node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default())
}
