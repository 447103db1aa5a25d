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
    destination::{Destination, pace, pace_of},
    history::now_us,
    limits::Limits,
    probing::{self, judge_attempts, open_targets},
    time_spent::Activity,
    verdict::Halt,
    waiting::Within,
};

/// From one look at the number of attempts to the next.
const LOOK: Duration = Duration::from_millis(100);
/// Probes are planned for as long as a case may take: fences, slow machines and slow implementations make a window longer, and
/// one that ends by itself has a hole.
pub const LONGEST: Duration = Duration::from_secs(1200);
/// A target without N probes in a window gets more time: at most so many times what N takes at the planned pace, and so many
/// windows.
const LATE: f64 = 1.2;
const WINDOWS: u32 = 3;

/// Probes that are under way, from some clients to some targets at an even pace. Ended by drop.
#[must_use = "a window that is not ended decides nothing"]
pub struct Background {
    clients: Vec<Client>,
    targets: Vec<Destination>,
    runs: Vec<Run>,
    window: Duration,
    /// How many probes of each target decide.
    decides: Decides,
    /// What these take, at the planned pace.
    over: Duration,
    /// Attempts that began earlier, in microseconds since the Unix epoch, are not judged.
    from_us: u64,
}

/// How many probes of a target and client decide in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decides {
    /// N: nothing else is judged of it.
    N,
    /// Those of [`Destination::held`] over the window: N have been judged before it.
    Held(Duration),
    /// Half of those that begin in the window, one so long after the other.
    Every(Duration, Duration),
}

impl Decides {
    fn probes(self, target: &Destination, limits: &Limits) -> usize {
        match self {
            Self::N => target.probes(limits),
            Self::Held(window) => target.held(window, limits),
            Self::Every(interval, window) => {
                let room = window.as_millis() / interval.as_millis().max(1) / 2;
                target.fewest().max(usize::try_from(room).unwrap_or(usize::MAX))
            }
        }
    }
}

impl Background {
    /// Begins to probe at a pace that yields N for each target and client within `window`, or later if these are more than half
    /// of a client's rate.
    pub async fn start(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        window: Duration,
    ) -> Result<Self, Halt> {
        let clients: Vec<_> = clients.iter().map(|client| (client.clone(), None)).collect();
        Self::begin(cx, &clients, targets, window, Decides::N).await
    }

    /// Begins what [`hold_steadily`] does, for windows of which several go on at once.
    pub async fn steadily(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        window: Duration,
    ) -> Result<Self, Halt> {
        let clients: Vec<_> = clients.iter().map(|client| (client.clone(), None)).collect();
        Self::begin(cx, &clients, targets, window, Decides::Held(window)).await
    }

    /// Begins to probe so often that each client begins one probe in an `interval` on average, of all its targets by
    /// turns: for gaps that are shorter than what lies between two probes of a window.
    pub async fn every(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        interval: Duration,
        window: Duration,
    ) -> Result<Self, Halt> {
        let open = u32::try_from(open_targets(cx, targets).len()).unwrap_or(u32::MAX);
        let clients: Vec<_> = clients.iter().map(|client| (client.clone(), None)).collect();
        let decides = Decides::Every(interval * open.max(1), window);
        Self::begin(cx, &clients, targets, window, decides).await
    }

    /// As [`Background::start`], where each client dials from these ports, the first to the last, each target from its share of
    /// them. Clients of one network have ports of their own.
    ///
    /// For windows in which nothing is translated at first: conntrack leaves connections untranslated whose first packet came
    /// then, and later ones from the same source port too, for as long as the entry lives (two minutes after the last SYN,
    /// `nf_conntrack_tcp_timeout_syn_sent`). A kernel hands its ports out again within seconds: it goes through them from another
    /// place every ten (`EPHEMERAL_PORT_SHUFFLE_PERIOD`).
    pub async fn start_from(
        cx: &Context,
        clients: &[(Client, [u16; 2])],
        targets: &[Destination],
        window: Duration,
    ) -> Result<Self, Halt> {
        let clients: Vec<_> = clients
            .iter()
            .map(|(client, ports)| (client.clone(), Some(*ports)))
            .collect();
        Self::begin(cx, &clients, targets, window, Decides::N).await
    }

    async fn begin(
        cx: &Context,
        clients: &[(Client, Option<[u16; 2]>)],
        targets: &[Destination],
        window: Duration,
        decides: Decides,
    ) -> Result<Self, Halt> {
        let targets = open_targets(cx, targets);
        let probes = |target: &Destination| decides.probes(target, cx.limits());
        let over = match decides {
            // Twice as many as decide.
            Decides::Every(..) => window / 2,
            _ => pace_of(&targets, probes, window, cx.limits()),
        };
        let plans = clients.iter().map(|(client, ports)| {
            let mut entries = pace(&targets, probes, over, LONGEST, cx.limits());
            if let Some(ports) = ports {
                let shares = shares(*ports, entries.len());
                for (entry, share) in entries.iter_mut().zip(shares) {
                    entry.source_ports = Some(share);
                }
            }
            (client, entries)
        });
        let starts = plans.map(|(client, entries)| probing::begin(cx, client, entries));
        let runs = try_join_all(starts).await?;
        Ok(Self {
            clients: clients.iter().map(|(client, _)| client.clone()).collect(),
            targets,
            runs,
            window,
            decides,
            over,
            from_us: 0,
        })
    }

    /// Attempts that have begun until now are not judged: only what is dialled from now on, by the same processes.
    pub fn counting_from_now(self) -> Self {
        Self {
            from_us: now_us(),
            ..self
        }
    }

    /// Lets the probes go on for their window from now, and until each target has its N from each client; then
    /// ends and judges them. Returns the attempts since they began that were judged.
    ///
    /// # Errors
    /// If a client ends before, which would be a hole in the window.
    pub async fn hold(self, cx: &Context) -> Result<Vec<Attempt>, Halt> {
        if self.targets.is_empty() {
            // Every axis has its verdict.
            return Ok(Vec::new());
        }
        let _spent = cx.clock().during(Activity::Hold);
        let (began, limits) = (Instant::now(), cx.limits());
        let latest = self.over.mul_f64(LATE).max(self.window * WINDOWS);
        // Bounded by what was planned; what is missing then shows as too few probes.
        while began.elapsed() < self.window || (!self.is_enough(limits) && began.elapsed() < latest) {
            tokio::time::sleep(LOOK).await;
        }
        let mut attempts = try_join_all(self.runs.into_iter().map(Run::stop)).await?.concat();
        attempts.retain(|attempt| attempt.start_us >= self.from_us);
        let targets = open_targets(cx, &self.targets);
        let at_least = |target: &Destination| self.decides.probes(target, limits);
        judge_attempts(cx, &self.clients, &targets, attempts, at_least).await
    }

    /// Ends probes that only made up a window; they are in the history.
    pub async fn end(self) -> Result<Vec<Attempt>, Halt> {
        Ok(try_join_all(self.runs.into_iter().map(Run::stop)).await?.concat())
    }

    /// Whether each target has as many attempts of each client as decide.
    fn is_enough(&self, limits: &Limits) -> bool {
        let has_enough = |attempts: &[Attempt]| {
            let mut counts: HashMap<_, usize> = HashMap::new();
            for attempt in attempts.iter().filter(|attempt| attempt.start_us >= self.from_us) {
                *counts
                    .entry((attempt.target.as_str(), attempt.transport))
                    .or_default() += 1;
            }
            self.targets.iter().all(|target| {
                let label = target.label();
                let count = counts.get(&(label.as_str(), target.transport));
                count.is_some_and(|count| *count >= self.decides.probes(target, limits))
            })
        };
        self.runs.iter().all(|run| run.with_attempts(has_enough))
    }
}

/// Probes steadily for `window`, one of each target and client in a [`Limits::hold_probe`], and judges: for what has to hold
/// after N probes of it have been judged. Returns the attempts.
///
/// # Errors
/// As of [`Background::hold`].
pub async fn hold_steadily(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    window: Duration,
) -> Result<Vec<Attempt>, Halt> {
    let background = Background::steadily(cx, clients, targets, window).await?;
    background.hold(cx).await
}

/// Verdict: within the limit targets come to be what is permitted, and are it from then on for T_hold, with N probes of
/// each client in that time. Of several groups of clients all at once. Returns the attempts of that time.
///
/// # Errors
/// As of [`Background::hold`].
pub async fn judge_held(
    cx: &Context,
    dialled: &[(Vec<Client>, Vec<Destination>)],
    within: Within,
) -> Result<Vec<Attempt>, Halt> {
    let settle = |(clients, targets): &'_ (Vec<Client>, Vec<Destination>)| {
        let (clients, targets) = (clients.clone(), targets.clone());
        async move { probing::judge_briefly(cx, &clients, &targets, within).await }
    };
    try_join_all(dialled.iter().map(settle)).await?;
    let mut windows = Vec::new();
    for (clients, targets) in dialled {
        windows.push(Background::start(cx, clients, targets, cx.limits().hold).await?);
    }
    let held = windows.into_iter().map(|window| window.hold(cx));
    Ok(try_join_all(held).await?.concat())
}

/// Of these ports, first and last, as many parts of one length, at least one each: of too few the last is there for all others.
pub fn shares([first, last]: [u16; 2], parts: usize) -> Vec<[u16; 2]> {
    let length = (usize::from(last.saturating_sub(first)) + 1) / parts.max(1);
    let length = u16::try_from(length).unwrap_or(u16::MAX).max(1);
    (0..parts)
        .map(|part| {
            let part = u16::try_from(part).unwrap_or(u16::MAX);
            let begin = first.saturating_add(part.saturating_mul(length)).min(last);
            [begin, begin.saturating_add(length - 1).min(last)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_shares_of_ports_overlap() {
        assert_eq!(shares([11_000, 29_999], 2), [[11_000, 20_499], [20_500, 29_999]]);
        assert_eq!(shares([1, 10], 3), [[1, 3], [4, 6], [7, 9]]);
        assert_eq!(shares([1, 2], 3), [[1, 1], [2, 2], [2, 2]]);
        assert!(shares([1, 2], 0).is_empty());
    }
}
