//! Waits between attempts, which double up to a limit.

use std::time::{Duration, Instant};

use super::LIMITS;

/// The next wait, and the run time that resets the waits.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    /// For restarts of processes.
    pub(super) fn restarts() -> Self {
        Self {
            first: LIMITS.restart_first,
            next: LIMITS.restart_first,
        }
    }

    /// For writes that the API server refuses.
    pub(super) fn writes() -> Self {
        Self {
            first: LIMITS.api_retry,
            next: LIMITS.api_retry,
        }
    }

    /// Returns the next wait, and doubles it up to [`Limits::restart_most`](super::Limits::restart_most).
    pub(super) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(LIMITS.restart_most);
        wait
    }

    /// As [`Backoff::wait`], for a process that ran since `begin`: a long run resets the waits.
    pub(super) fn wait_after_run(&mut self, begin: Instant) -> Duration {
        if begin.elapsed() >= LIMITS.restart_forget {
            self.next = self.first;
        }
        self.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_a_long_run_forgets_them() {
        let mut backoff = Backoff::restarts();
        let waits: Vec<Duration> = (0..10).map(|_| backoff.wait()).collect();
        assert_eq!(waits[0], LIMITS.restart_first);
        assert_eq!(waits[1], LIMITS.restart_first * 2);
        assert_eq!(waits[9], LIMITS.restart_most);
        let long_ago = Instant::now()
            .checked_sub(LIMITS.restart_forget)
            .expect("the clock has run that long");
        assert_eq!(backoff.wait_after_run(long_ago), LIMITS.restart_first);
        assert_eq!(backoff.wait_after_run(Instant::now()), LIMITS.restart_first * 2);
    }
}
