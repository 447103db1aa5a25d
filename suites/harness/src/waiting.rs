//! Waiting for conditions, bounded, and letting a fault last.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::verdict::Halt;

/// From one look at a condition to the next.
const LOOK: Duration = Duration::from_millis(50);
/// From the beginning of one round of probes to that of the next, of those that wait for a change.
const ROUND: Duration = Duration::from_millis(200);
/// The same, of those that see whether it holds.
const HOLDING: Duration = Duration::from_secs(2);

/// From when, and for how long at most, a change may take.
#[derive(Clone, Copy, Debug)]
pub struct Within {
    /// The response to the write.
    pub since: Instant,
    /// The limit.
    pub limit: Duration,
}

impl Within {
    /// A limit that begins now.
    #[must_use]
    pub fn from_now(limit: Duration) -> Self {
        Self {
            since: Instant::now(),
            limit,
        }
    }

    /// A limit that begins with the last of some writes.
    #[must_use]
    pub fn from(since: Instant, limit: Duration) -> Self {
        Self { since, limit }
    }

    /// Whether the limit has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// What is left of the limit.
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.since.elapsed())
    }
}

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
        if within.is_over() {
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
