//! Waiting for conditions, bounded, and letting a fault last.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use cluster::AgentState;

use crate::{context::Context, probing::Within, verdict::Halt};

/// From one look at a condition to the next.
const LOOK: Duration = Duration::from_millis(50);
/// From the beginning of one round of probes to that of the next, of those that wait for a change.
const ROUND: Duration = Duration::from_millis(200);
/// The same, of those that see whether it holds.
const HOLDING: Duration = Duration::from_secs(2);

/// Looks at a condition until it holds, and returns what it found.
///
/// # Errors
/// Inconclusive if it does not hold within the limit; what the condition returns as an error, at once.
pub async fn eventually<T, F>(what: &str, within: Within, mut condition: impl FnMut() -> F) -> Result<T, Halt>
where
    F: Future<Output = Result<Option<T>, Halt>>,
{
    loop {
        if let Some(found) = condition().await? {
            return Ok(found);
        }
        if within.since.elapsed() >= within.limit {
            return Err(Halt::Inconclusive(format!(
                "{what}: not within {:?}",
                within.limit
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Looks that follow each other at an even pace, for a limited time. One is taken in any case.
#[derive(Debug)]
pub struct Looks {
    until: Instant,
    every: Duration,
    begun: Instant,
}

impl Looks {
    /// Rounds of probes that wait for a change.
    #[must_use]
    pub fn within(within: Within) -> Self {
        Self::new(within.since + within.limit, ROUND)
    }

    /// Rounds of probes that see whether something holds for so long.
    #[must_use]
    pub fn throughout(hold: Duration) -> Self {
        Self::new(Instant::now() + hold, HOLDING)
    }

    fn new(until: Instant, every: Duration) -> Self {
        let begun = Instant::now();
        Self { until, every, begun }
    }

    /// Whether there is time for another one, which begins when this returns.
    pub async fn again(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        has_lasted(self.begun, self.every).await;
        self.begun = Instant::now();
        true
    }
}

/// Returns when a fault that began then has lasted so long: what lasts is part of the fault, not a wait for an
/// effect.
pub async fn has_lasted(since: Instant, duration: Duration) {
    tokio::time::sleep_until((since + duration).into()).await;
}

impl Context {
    /// Returns when the agent of a node, started after `before`, says that it is ready. `None`: it runs, and did not say
    /// so within the limit; what packets meet is judged all the same, because clients don't ask an agent how it is.
    ///
    /// # Errors
    /// Inconclusive if no new agent runs at the end of the limit.
    pub async fn agent_ready(
        &self,
        node: &str,
        before: &AgentState,
        within: Within,
    ) -> Result<Option<Instant>, Halt> {
        let seen = async || {
            let state = self.cluster().agents()?.state(node).await?;
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

    /// Whether the agent of a node does not say that it is ready until the limit is over.
    pub async fn stays_unready(&self, node: &str, within: Within) -> Result<bool, Halt> {
        let ready = eventually(&format!("the agent of {node} is ready"), within, || async {
            let state = self.cluster().agents()?.state(node).await?;
            Ok((state.ready == Some(true)).then_some(()))
        })
        .await;
        match ready {
            Ok(()) => Ok(false),
            Err(Halt::Inconclusive(_)) => Ok(true),
            Err(halt) => Err(halt),
        }
    }

    /// Agents that were started again since: it would have healed what is under test. Empty where the cluster does
    /// not show its agents.
    pub async fn restarted_since(
        &self,
        before: Option<&std::collections::BTreeMap<String, AgentState>>,
    ) -> Result<Vec<String>, Halt> {
        let (Some(before), Some(after)) = (before, self.agents().await?) else {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_never_holds_is_inconclusive_and_was_looked_at_once_at_least() {
        let mut looks = 0;
        let within = Within::from_now(Duration::ZERO);
        let never = eventually("the sun rises", within, || {
            looks += 1;
            async { Ok(None::<()>) }
        });
        let halt = never.await.unwrap_err();
        assert!(matches!(halt, Halt::Inconclusive(_)), "{halt}");
        assert_eq!(
            (halt.to_string(), looks),
            ("the sun rises: not within 0ns".to_owned(), 1)
        );
    }

    #[tokio::test]
    async fn looks_are_apart_and_end_with_their_time() {
        let begun = Instant::now();
        let mut looks = Looks::within(Within::from_now(Duration::from_millis(300)));
        let mut taken = 1;
        while looks.again().await {
            taken += 1;
        }
        assert!((2..=3).contains(&taken), "{taken}");
        assert!(begun.elapsed() >= ROUND * (taken - 1));
        assert!(!Looks::throughout(Duration::ZERO).again().await);
    }

    #[tokio::test]
    async fn what_was_found_is_returned() {
        let found = eventually("found", Within::from_now(Duration::ZERO), || async {
            Ok(Some(7))
        })
        .await;
        assert_eq!(found.unwrap(), 7);
    }
}
