//! The agents of the target: their states, and waits for them.

use std::{collections::BTreeMap, time::Instant};

use cluster::{AgentState, Stop};
use faults::StoppedAgent;
use oracle::finding::{Finding, Weight};

use crate::{
    context::Context,
    history::Event,
    verdict::Halt,
    waiting::{Within, eventually},
};

/// The agents of all nodes; `None` where the cluster does not show them.
pub async fn all(cx: &Context) -> Result<Option<BTreeMap<String, AgentState>>, Halt> {
    if cx.cluster().agents().is_err() {
        return Ok(None);
    }
    let mut states = BTreeMap::new();
    for node in cx.nodes() {
        states.insert(node.clone(), state(cx, &node).await?);
    }
    Ok(Some(states))
}

/// The state of an agent, which is in the history, too: it says how the agent ended last.
pub(crate) async fn state(cx: &Context, node: &str) -> Result<AgentState, Halt> {
    let state = cx.cluster().agents()?.state(node).await?;
    cx.history().add(&Event::Agent {
        node: node.to_owned(),
        state: state.clone(),
    });
    Ok(state)
}

/// Returns when the agent of a node, started after `before`, says that it is ready. `None`: it runs, and did not say
/// so within the limit; what packets meet is judged all the same, because clients don't ask an agent how it is.
///
/// # Errors
/// Inconclusive if no new agent runs at the end of the limit.
pub async fn ready(
    cx: &Context,
    node: &str,
    before: &AgentState,
    within: Within,
) -> Result<Option<Instant>, Halt> {
    let seen = async || {
        let state = cx.cluster().agents()?.state(node).await?;
        let is_new = state.pid.is_some() && state.pid != before.pid;
        Ok::<_, Halt>((is_new, is_new && state.ready == Some(true)))
    };
    let ready = eventually(&format!("a new agent of {node} is ready"), within, || async {
        Ok(seen().await?.1.then(Instant::now))
    })
    .await;
    match ready {
        Ok(ready) => Ok(Some(ready)),
        Err(Halt::Inconclusive(_)) if seen().await?.0 => Ok(None),
        Err(halt) => Err(halt),
    }
}

/// Agents that were killed, and stay down. They start when this is dropped.
#[must_use = "the agents start again when this is dropped"]
pub struct Killed(Vec<(StoppedAgent, String, AgentState)>);

impl Killed {
    /// Kills the agents of these nodes.
    ///
    /// # Errors
    /// One of them does not end.
    pub async fn kill(cx: &Context, nodes: &[String]) -> Result<Self, Halt> {
        let mut killed = Vec::new();
        for node in nodes {
            let before = cx.cluster().agents()?.state(node).await?;
            let stopped = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
            cx.fault(&format!("agent of {node} killed, process {:?}", before.pid));
            killed.push((stopped, node.clone(), before));
        }
        Ok(Self(killed))
    }

    /// Starts them, and returns when each is a new process that says that it is ready, or when T_heal is over.
    ///
    /// # Errors
    /// Inconclusive if no new agent runs on one of the nodes then.
    pub async fn start(self, cx: &Context) -> Result<(), Halt> {
        let within = Within::from_now(cx.limits().heal);
        let mut new = Vec::new();
        for (stopped, node, before) in self.0 {
            stopped.start().await?;
            new.push((node, before));
        }
        for (node, before) in new {
            let what = format!("the agent of {node} is ready again");
            match ready(cx, &node, &before, within).await? {
                Some(ready) => cx.record_delay(&what, ready.duration_since(within.since), within.limit),
                None => cx.record(&what, format!("not within {:?}", within.limit)),
            }
        }
        Ok(())
    }

    /// Starts them, and does not wait for what they say.
    ///
    /// # Errors
    /// One of them does not start.
    pub async fn start_at_once(self) -> Result<(), Halt> {
        for (stopped, _, _) in self.0 {
            stopped.start().await?;
        }
        Ok(())
    }
}

/// Replaces the agents of these nodes by ones that find nothing of theirs: they are stopped, their target's clean-up removes
/// what they keep, and they start. Returns when each says that it is ready, or T_heal is over: packets decide.
///
/// # Errors
/// An agent does not stop or start, or its clean-up fails.
pub async fn start_afresh(cx: &Context, nodes: &[String]) -> Result<(), Halt> {
    for node in nodes {
        let before = cx.cluster().agents()?.state(node).await?;
        let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
        cx.cluster().agents()?.clean_up(node).await?;
        cx.fault(&format!("agent of {node} stopped, its state removed"));
        agent.start().await?;
        let within = Within::from_now(cx.limits().heal);
        if ready(cx, node, &before, within).await?.is_none() {
            let late = format!("{node} not ready within {:?}", within.limit);
            cx.record("started afresh", late);
        }
    }
    Ok(())
}

/// Whether the agent of a node does not say that it is ready until the limit is over.
pub async fn stays_unready(cx: &Context, node: &str, within: Within) -> Result<bool, Halt> {
    let ready = eventually(&format!("the agent of {node} is ready"), within, || async {
        let state = cx.cluster().agents()?.state(node).await?;
        Ok((state.ready == Some(true)).then_some(()))
    })
    .await;
    match ready {
        Ok(()) => Ok(false),
        Err(Halt::Inconclusive(_)) => Ok(true),
        Err(halt) => Err(halt),
    }
}

/// When the agent of a node first said that it is not ready; `None`: it has not within the limit.
pub async fn turned_unready(cx: &Context, node: &str, within: Within) -> Result<Option<Instant>, Halt> {
    let unready = eventually(&format!("the agent of {node} is not ready"), within, || async {
        let state = cx.cluster().agents()?.state(node).await?;
        Ok((state.ready == Some(false)).then(Instant::now))
    })
    .await;
    match unready {
        Ok(when) => Ok(Some(when)),
        Err(Halt::Inconclusive(_)) => Ok(None),
        Err(halt) => Err(halt),
    }
}

/// Agents that were started again since: it would have healed what is under test. Empty where the cluster does
/// not show its agents.
pub async fn restarted_since(
    cx: &Context,
    before: Option<&BTreeMap<String, AgentState>>,
) -> Result<Vec<String>, Halt> {
    let (Some(before), Some(after)) = (before, all(cx).await?) else {
        return Ok(Vec::new());
    };
    let is_same = |node: &str, state: &AgentState| {
        before
            .get(node)
            .is_some_and(|old| old.pid == state.pid && old.starts == state.starts)
    };
    let words = |(node, state): (String, AgentState)| {
        let exit = state.last_exit.unwrap_or_else(|| "unknown".to_owned());
        (node, format!("{} starts, last exit {exit}", state.starts))
    };
    Ok(after
        .into_iter()
        .filter(|(node, state)| !is_same(node, state))
        .map(words)
        .map(|(node, text)| format!("{node} ({text})"))
        .collect())
}

/// Verdict: no agent was started again since.
pub async fn no_restart(
    cx: &Context,
    axis: &str,
    before: Option<&BTreeMap<String, AgentState>>,
) -> Result<(), Halt> {
    let restarted = restarted_since(cx, before).await?;
    if !restarted.is_empty() {
        let finding = Finding {
            weight: Weight::Violation,
            subject: "agents".to_owned(),
            expected: "no restart: the case makes none".to_owned(),
            found: restarted.join(", "),
            first: Vec::new(),
            counted: None,
        };
        cx.axes().judged(axis, vec![finding]);
    }
    Ok(())
}
