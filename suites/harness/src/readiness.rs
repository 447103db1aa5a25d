//! Ready means served, watched through every run of a case that is about outages, leftovers or restarts.
//!
//! A control Service that the case does not touch is dialled all along, twice a second: its ClusterIP from hosts and pods,
//! its node port on every node from outside. Meanwhile every agent is asked whether it is ready. Of one that has been for
//! [`Limits::ready`](crate::limits::Limits::ready), the control Service must not fail for T_ep from any vantage of its node;
//! such a failure fails the case, whatever else came of it. An agent that has not been watched for so long as a failure
//! takes has no axis: nothing was asked of it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::{AgentState, Cluster};
use futures::future::join_all;
use oracle::{
    breakage::Ending,
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Outcome, PlanEntry, Transport},
};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    client::{Client, Run},
    context::Context,
    history::now_us,
    limits::Limits,
    probing::begin,
    report::AxisReport,
    verdict::{Halt, Verdict},
};

/// From one look at an agent, and one dial of the control Service, to the next.
const LOOK: Duration = Duration::from_millis(500);
/// Name of the control Service.
const CONTROL: &str = "lasting";
/// What its axes begin with: the claim.
const AXIS: &str = "ready-means-served";
/// Areas of the catalogue whose cases are watched.
const AREAS: [&str; 3] = ["B ", "C ", "N "];

/// But this one, whose claim gives agents more time.
const UNWATCHED: &str = "state-wiped-recovers";

/// The watch, under way. Its clients and its looks end with it.
pub(crate) struct Readiness {
    runs: Vec<Run>,
    vantages: Vec<Vantage>,
    identity: String,
    spans: Arc<Mutex<BTreeMap<String, Looks>>>,
    looks: JoinHandle<()>,
}

/// A client and what it dials through the agent of a node.
struct Vantage {
    node: String,
    client: String,
    target: String,
}

/// A time in which one agent said at every look that it is ready, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    pid: Option<u32>,
    from_us: u64,
    until_us: u64,
}

/// What looks at one agent have shown.
#[derive(Clone, Debug, Default)]
struct Looks {
    spans: Vec<Span>,
    /// Whether the last of them goes on.
    is_ready: bool,
}

impl Readiness {
    /// Begins, for a case of an area that is watched.
    pub(crate) async fn start(cx: &Context, area: &str, case: &str) -> Result<Option<Self>, Halt> {
        let too_short = "--quick ends before an agent has been ready for long enough";
        let is_watched = case != UNWATCHED && AREAS.iter().any(|watched| area.starts_with(watched));
        if !is_watched || !cx.axes().unless_quick(AXIS, too_short) {
            return Ok(None);
        }
        let own = cx.own_services();
        let family = *cx
            .families()
            .first()
            .ok_or_else(|| Halt::Harness("no family".to_owned()))?;
        let control = own
            .create_control(cx.objects(), CONTROL, family, &["TCP"])
            .await?;
        let (mut vantages, mut runs) = (Vec::new(), Vec::new());
        for client in cx.clients().iter() {
            let dialled = vec![(client.node.clone(), control.at_cluster_ip())];
            runs.push(dial(cx, client, dialled, &mut vantages).await?);
        }
        if let Some(outside) = cx.clients().outside() {
            let nodes = control.at_nodes(cx.cluster().describe()).into_iter();
            let dialled = nodes.filter_map(|(node, ports)| Some((node, *ports.first()?)));
            runs.push(dial(cx, &outside, dialled.collect(), &mut vantages).await?);
        }
        let spans = Arc::default();
        Ok(Some(Self {
            looks: tokio::spawn(look(Arc::clone(cx.cluster()), cx.nodes(), Arc::clone(&spans))),
            runs,
            vantages,
            identity: own.identity(Transport::Tcp),
            spans,
        }))
    }

    /// Ends within so long, and says what was found: an axis for each node on which an agent has been ready for long
    /// enough. A client that does not end as it should has shown nothing, which is an axis that is inconclusive.
    pub(crate) async fn end(mut self, limits: &Limits, limit: Duration) -> Vec<AxisReport> {
        self.looks.abort();
        let (mut attempts, mut lost) = (Vec::new(), Vec::new());
        let stops = std::mem::take(&mut self.runs)
            .into_iter()
            .map(|run| timeout(limit, run.stop()));
        for stopped in join_all(stops).await {
            match stopped {
                Ok(Ok(of_client)) => attempts.extend(of_client),
                Ok(Err(halt)) => lost.push(halt.to_string()),
                Err(_) => lost.push(format!("a probe client has not ended within {limit:?}")),
            }
        }
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut axes = Vec::new();
        for (node, looks) in spans {
            let ready: Vec<Span> = looks
                .spans
                .iter()
                .filter_map(|span| span.after(limits.ready, limits.endpoints))
                .collect();
            let mut findings = Vec::new();
            let mut is_watched = true;
            for vantage in self.vantages.iter().filter(|vantage| vantage.node == node) {
                let of_vantage: Vec<&Attempt> = attempts
                    .iter()
                    .filter(|one| one.client == vantage.client && one.target == vantage.target)
                    .collect();
                is_watched &= ready
                    .iter()
                    .any(|span| lasts(&of_vantage, *span, limits.endpoints));
                findings.extend(ready.iter().filter_map(|span| {
                    let found = hole(&of_vantage, &self.identity, *span, limits.endpoints)?;
                    Some(finding(vantage, &found, limits))
                }));
            }
            let verdict = match findings.first() {
                Some(first) => Verdict::Fail {
                    why: first.to_string().lines().next().unwrap_or_default().to_owned(),
                },
                None if is_watched && !ready.is_empty() => Verdict::Pass,
                None => continue,
            };
            axes.push(AxisReport::new(format!("{AXIS}, {node}"), verdict, findings));
        }
        if !lost.is_empty() {
            axes.push(AxisReport::new(
                AXIS,
                Verdict::Inconclusive { why: lost.join("; ") },
                Vec::new(),
            ));
        }
        axes
    }
}

/// Whether there were attempts for at least so long within the span: only then could they have shown a hole.
fn lasts(attempts: &[&Attempt], span: Span, least: Duration) -> bool {
    let within: Vec<_> = attempts.iter().filter(|one| span.has(one)).collect();
    let began = within.iter().map(|one| one.start_us).min().unwrap_or_default();
    let ended = within.iter().map(|one| one.end_us).max().unwrap_or_default();
    u128::from(ended.saturating_sub(began)) >= least.as_micros()
}

/// The attempts of the first time of at least so long, within the span, in which the control Service did not answer once.
fn hole<'a>(
    attempts: &[&'a Attempt],
    identity: &str,
    span: Span,
    least: Duration,
) -> Option<Vec<&'a Attempt>> {
    let mut failed: Vec<&Attempt> = Vec::new();
    for &attempt in attempts.iter().filter(|one| span.has(one)) {
        if matches!(&attempt.outcome, Outcome::Answered { answer, .. } if answer.identity == identity) {
            failed.clear();
            continue;
        }
        failed.push(attempt);
        let began = failed[0].start_us;
        if u128::from(attempt.end_us.saturating_sub(began)) >= least.as_micros() {
            return Some(failed);
        }
    }
    None
}

/// Attempts that a finding shows.
const FIRST: usize = 3;

fn finding(vantage: &Vantage, attempts: &[&Attempt], limits: &Limits) -> Finding {
    let what = What::Ready {
        node: vantage.node.clone(),
    };
    Finding {
        weight: Weight::Violation,
        subject: format!("{} to {}", vantage.client, vantage.target),
        expected: format!(
            "answered at least once in {:?}, as the agent of {} had been ready for {:?}",
            limits.endpoints, vantage.node, limits.ready
        ),
        found: "no answer of the control Service".to_owned(),
        first: attempts.iter().take(FIRST).copied().cloned().collect(),
        counted: Counted::attempts(what, attempts, attempts, Ending::of),
    }
}

async fn dial(
    cx: &Context,
    client: &Client,
    dialled: Vec<(String, SocketAddr)>,
    vantages: &mut Vec<Vantage>,
) -> Result<Run, Halt> {
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let longest = cx.longest();
    let mut entries = Vec::new();
    for (node, address) in dialled {
        let target = format!("control Service at {address}");
        entries.push(PlanEntry {
            target: target.clone(),
            transport: Transport::Tcp,
            address: address.ip(),
            port: address.port(),
            count: u32::try_from(longest.as_millis() / LOOK.as_millis()).unwrap_or(u32::MAX),
            interval_ms: milliseconds(LOOK),
            limit_ms: milliseconds(cx.limits().probe),
            until: None,
            flows: None,
            source_ports: None,
            at_once: None,
            one_way: false,
        });
        vantages.push(Vantage {
            node,
            client: client.name.clone(),
            target,
        });
    }
    begin(cx, client, entries).await
}

/// Asks the agents until it is aborted. One that can't be asked is not ready as far as is known.
async fn look(cluster: Arc<Cluster>, nodes: Vec<String>, spans: Arc<Mutex<BTreeMap<String, Looks>>>) {
    // Without agents that can be asked there is nothing to see.
    let Ok(agents) = cluster.agents() else { return };
    let mut every = tokio::time::interval(LOOK);
    loop {
        every.tick().await;
        for node in &nodes {
            let asked_us = now_us();
            let state = agents.state(node).await.ok();
            let mut all = spans.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(node.clone())
                .or_default()
                .note(state.as_ref(), asked_us);
        }
    }
}

impl Looks {
    /// One look.
    fn note(&mut self, state: Option<&AgentState>, at_us: u64) {
        let ready = state.filter(|state| state.ready == Some(true));
        if let Some(state) = ready {
            match self.spans.last_mut() {
                Some(last) if self.is_ready && last.pid == state.pid => last.until_us = at_us,
                _ => self.spans.push(Span {
                    pid: state.pid,
                    from_us: at_us,
                    until_us: at_us,
                }),
            }
        }
        self.is_ready = ready.is_some();
    }
}

impl Span {
    /// What remains of it after so long, if that is `least` long.
    fn after(self, settled: Duration, least: Duration) -> Option<Self> {
        let microseconds = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let from_us = self.from_us.saturating_add(microseconds(settled));
        let is_enough = from_us.saturating_add(microseconds(least)) <= self.until_us;
        is_enough.then_some(Self { from_us, ..self })
    }

    /// Whether an attempt began and ended within it.
    fn has(&self, attempt: &Attempt) -> bool {
        attempt.start_us >= self.from_us && attempt.end_us <= self.until_us
    }
}

#[cfg(test)]
mod tests {
    use oracle::history::Stage;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn state(pid: u32, ready: bool) -> AgentState {
        AgentState {
            pid: Some(pid),
            starts: 1,
            ready: Some(ready),
            last_exit: None,
            variant: None,
            way: None,
        }
    }

    fn span(from: u64, until: u64) -> Span {
        Span {
            pid: Some(1),
            from_us: from * SECOND,
            until_us: until * SECOND,
        }
    }

    fn refused(at: u64) -> Attempt {
        let address = "10.96.0.9:80".parse().unwrap();
        Attempt {
            start_us: at * SECOND,
            end_us: (at + 1) * SECOND,
            client: "c".into(),
            target: "t".into(),
            transport: Transport::Tcp,
            destination: address,
            local: None,
            nonce: String::new(),
            exchange: None,
            fragments: None,
            outcome: Outcome::Failed {
                stage: Stage::Connect,
                errno: "ECONNREFUSED".into(),
            },
        }
    }

    #[test]
    fn another_process_or_a_look_that_is_not_answered_begins_another_time() {
        let mut looks = Looks::default();
        for (at, state) in [
            (1, Some(state(1, true))),
            (2, Some(state(1, true))),
            (3, None),
            (4, Some(state(1, true))),
            (5, Some(state(2, true))),
            (6, Some(state(2, false))),
        ] {
            looks.note(state.as_ref(), at);
        }
        let times: Vec<_> = looks
            .spans
            .iter()
            .map(|span| (span.from_us, span.until_us))
            .collect();
        assert_eq!(times, [(1, 2), (4, 4), (5, 5)]);
        assert!(!looks.is_ready);
    }

    #[test]
    fn what_counts_begins_when_it_has_been_ready_for_long_enough_and_is_as_long_as_a_hole() {
        let [settled, least] = [60, 30].map(Duration::from_secs);
        let rest = |until| span(0, until).after(settled, least);
        assert_eq!(rest(100), Some(span(60, 100)));
        assert_eq!(rest(90), Some(span(60, 90)));
        for too_short in [60, 61, 89] {
            assert_eq!(rest(too_short), None, "no failure in it could be long enough");
        }
    }

    #[test]
    fn only_attempts_for_all_of_the_limit_can_show_a_hole() {
        let attempts: Vec<Attempt> = (0..100).map(refused).collect();
        let all: Vec<&Attempt> = attempts.iter().collect();
        let limit = Duration::from_secs(30);
        assert!(lasts(&all, span(60, 90), limit));
        assert!(!lasts(&all, span(60, 89), limit));
        assert!(!lasts(&all[..80], span(60, 100), limit));
        assert!(!lasts(&[], span(60, 100), limit));
    }

    #[test]
    fn only_failures_for_all_of_the_limit_and_within_the_time_are_a_hole() {
        let attempts: Vec<Attempt> = (0..40).map(refused).collect();
        let all: Vec<&Attempt> = attempts.iter().collect();
        let limit = Duration::from_secs(30);
        assert!(hole(&all, "me", span(0, 40), limit).is_some());
        assert!(hole(&all, "me", span(20, 40), limit).is_none());
        assert!(hole(&all[..20], "me", span(0, 40), limit).is_none());
    }
}
