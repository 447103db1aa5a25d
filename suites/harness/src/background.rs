//! Probing through a window: how a case holds a time instead of sleeping.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use oracle::history::Attempt;

use crate::{
    client::{Client, Run},
    context::Context,
    history::now_us,
    target::{Target, pace, plan},
    verdict::Halt,
};

/// From one look at the number of attempts to the next.
const LOOK: Duration = Duration::from_millis(100);
/// Probes are planned for so many windows at most: fences and slow machines make a window longer.
const WINDOWS: u32 = 6;

/// Probes that are under way, from some clients to some targets at an even pace. Ended by drop.
#[must_use = "a window that nobody ends decides nothing"]
pub struct Background {
    clients: Vec<Client>,
    targets: Vec<Target>,
    runs: Vec<Run>,
    window: Duration,
    /// Attempts that began earlier, in microseconds since the Unix epoch, are not judged.
    from_us: u64,
}

impl Background {
    /// Attempts that have begun until now are not judged: only what is dialled from now on, by the same processes.
    pub fn counting_from_now(self) -> Self {
        Self {
            from_us: now_us(),
            ..self
        }
    }
}

impl Context {
    /// Begins to probe at a pace that yields N for each target and client within `window`, or later if these are more than half
    /// of a client's rate.
    pub async fn background(
        &self,
        clients: &[Client],
        targets: &[Target],
        window: Duration,
    ) -> Result<Background, Halt> {
        let targets = self.open_targets(targets);
        let plans: Vec<_> = clients
            .iter()
            .map(|client| {
                let entries = pace(&targets, window, WINDOWS, self.limits());
                (client, plan(client, entries))
            })
            .collect();
        let starts = plans
            .iter()
            .map(|(client, plan)| Run::start(&*self.cluster, client, plan, self.history.clone()));
        let runs = try_join_all(starts).await?;
        Ok(Background {
            clients: clients.to_vec(),
            targets,
            runs,
            window,
            from_us: 0,
        })
    }

    /// Lets the probes go on for their window from now, and until each target has its N from each client; then
    /// ends and judges them. Returns the attempts since they began that were judged.
    ///
    /// # Errors
    /// If a client ends before, which would be a hole in the window.
    pub async fn hold(&self, background: Background) -> Result<Vec<Attempt>, Halt> {
        let Background {
            clients,
            targets,
            runs,
            window,
            from_us,
        } = background;
        if targets.is_empty() {
            // Every axis has its verdict.
            return Ok(Vec::new());
        }
        let began = Instant::now();
        // Bounded by what was planned; what is missing then shows as too few probes.
        while began.elapsed() < window
            || (!self.is_enough(&runs, &targets, from_us) && began.elapsed() < window * 3)
        {
            tokio::time::sleep(LOOK).await;
        }
        let mut attempts = try_join_all(runs.into_iter().map(Run::stop)).await?.concat();
        attempts.retain(|attempt| attempt.start_us >= from_us);
        let limits = self.limits().clone();
        let targets = self.open_targets(&targets);
        self.judge_attempts(&clients, &targets, attempts, |target| target.probes(&limits))
            .await
    }

    /// Ends probes that only made up a window; they are in the history.
    pub async fn end(&self, background: Background) -> Result<Vec<Attempt>, Halt> {
        Ok(try_join_all(background.runs.into_iter().map(Run::stop))
            .await?
            .concat())
    }

    fn is_enough(&self, runs: &[Run], targets: &[Target], from_us: u64) -> bool {
        let has_enough = |attempts: &[Attempt]| {
            let mut counts: HashMap<_, usize> = HashMap::new();
            for attempt in attempts.iter().filter(|attempt| attempt.start_us >= from_us) {
                *counts
                    .entry((attempt.target.as_str(), attempt.transport))
                    .or_default() += 1;
            }
            targets.iter().all(|target| {
                let label = target.label();
                let count = counts.get(&(label.as_str(), target.transport));
                count.is_some_and(|count| *count >= target.probes(self.limits()))
            })
        };
        runs.iter().all(|run| run.with_attempts(has_enough))
    }
}
