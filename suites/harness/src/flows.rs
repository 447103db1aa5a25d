//! Established flows: sockets that talk through a case from before its fault to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use oracle::{
    check::{Observed, Permitted},
    finding::Finding,
    flow::{self, FlowKey, NONE_LOST, wandering},
    history::{Attempt, Outcome, PlanEntry, Transport},
    observations,
};

use crate::{
    axes::first_line,
    client::{Client, Run},
    context::Context,
    destination::{Destination, half_of},
    frontends::permitting,
    history::now_us,
    limits::Limits,
    probing::{self, any_open, judge_attempts, open_targets},
    time_spent::Activity,
    verdict::Halt,
    waiting::{Within, eventually, has_lasted},
};

/// Flows are planned for so long at most, unscaled: longer than any case runs that has some.
const LONGEST: Duration = Duration::from_secs(900);
/// So many exchanges of a flow, one after the other, show what has become of it.
const LAST: usize = 2;
/// From one look at flows to the next, and the part of the time that a change has taken so far.
const LOOK: Duration = Duration::from_millis(500);
const PATIENCE: f64 = 0.1;

/// Flows that are under way. Ended by drop.
#[must_use = "flows that are not ended decide nothing"]
pub struct Flows(Vec<Opened>);

/// Flows that were opened together, dealt to clients in turn.
struct Opened {
    /// Each with its number of flows to each target.
    clients: Vec<(Client, u32)>,
    targets: Vec<Destination>,
    runs: Vec<Run>,
    /// The limits of the run; some flows have a pace of their own.
    limits: Limits,
}

impl Flows {
    /// Opens so many flows (`each`) to every target, dealt to the clients in turn, at 10 exchanges a second each
    /// ([`crate::limits::Limits::exchange`]), and returns when every one of them has been answered: the control. A target's
    /// transport says what they are: connections, connected or unconnected sockets.
    ///
    /// # Errors
    /// Inconclusive if one of them has not been answered within the limit.
    pub async fn open(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        each: u32,
        within: Within,
    ) -> Result<Self, Halt> {
        let flows = Self::begin(cx, clients, targets, each, cx.limits().clone()).await?;
        flows.answered(within).await?;
        Ok(flows)
    }

    /// As [`Flows::open`], of flows that go on one exchange in so long, of which none may be lost: one that has no
    /// answer within the limit of a probe is a stall.
    ///
    /// # Errors
    /// The same.
    pub async fn open_every(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        each: u32,
        every: Duration,
        within: Within,
    ) -> Result<Self, Halt> {
        let limits = Limits {
            exchange: every,
            lost_of: NONE_LOST,
            ..cx.limits().clone()
        };
        let flows = Self::begin(cx, clients, targets, each, limits).await?;
        flows.answered(within).await?;
        Ok(flows)
    }

    /// As [`Flows::open`], with an exchange in each [`Limits::hold_probe`](crate::limits::Limits::hold_probe): less than any
    /// table of flows keeps what is silent. Whether they are answered is another question; what is to be delivered, and not
    /// answered, is sent without asking for an answer.
    pub async fn open_steadily(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        each: u32,
    ) -> Result<Self, Halt> {
        let limits = Limits {
            exchange: cx.limits().hold_probe,
            ..cx.limits().clone()
        };
        Self::begin(cx, clients, targets, each, limits).await
    }

    async fn begin(
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        each: u32,
        limits: Limits,
    ) -> Result<Self, Halt> {
        let targets = open_targets(cx, targets);
        let clients = deal(clients, each);
        let of_each = |flows: u32| {
            targets
                .iter()
                .map(|target| established(&limits, target, flows))
                .collect()
        };
        let entries = clients.iter().map(|(_, flows)| of_each(*flows)).collect();
        Self::start(cx, clients, targets.clone(), entries, limits.clone()).await
    }

    /// One flow of a client to each of these targets, from a port that it is bound to. Whether it is answered is another
    /// question.
    pub async fn open_from(
        cx: &Context,
        client: &Client,
        dialled: &[(Destination, u16)],
    ) -> Result<Self, Halt> {
        let entry = |(target, port): &(Destination, u16)| PlanEntry {
            source_ports: Some([*port, *port]),
            ..established(cx.limits(), target, 1)
        };
        let targets = dialled.iter().map(|(target, _)| target.clone()).collect();
        let entries = dialled.iter().map(entry).collect();
        let limits = cx.limits().clone();
        Self::start(cx, vec![(client.clone(), 1)], targets, vec![entries], limits).await
    }

    /// Control: every one of these flows has been answered.
    ///
    /// # Errors
    /// Inconclusive if one of them has not been answered within the limit.
    pub async fn answered(&self, within: Within) -> Result<(), Halt> {
        eventually("control failed (every flow is answered)", within, async || {
            Ok(self.0.iter().all(Opened::are_answered).then_some(()))
        })
        .await
    }

    async fn start(
        cx: &Context,
        clients: Vec<(Client, u32)>,
        targets: Vec<Destination>,
        entries: Vec<Vec<PlanEntry>>,
        limits: Limits,
    ) -> Result<Self, Halt> {
        let starts = clients
            .iter()
            .zip(entries)
            .map(|((client, _), entries)| probing::begin(cx, client, entries));
        let runs = try_join_all(starts).await?;
        Ok(Self(vec![Opened {
            clients,
            targets,
            runs,
            limits,
        }]))
    }

    /// Lets the flows go on for a window from now, ends them, and judges: none has ended, none has changed its backend,
    /// fewer than 1 % of the exchanges were lost. Returns all exchanges since they began.
    ///
    /// # Errors
    /// If a client ends before, which would be a hole in the window.
    pub async fn hold(self, cx: &Context, window: Duration) -> Result<Vec<Attempt>, Halt> {
        self.hold_those(cx, window, |_| true).await
    }

    /// As [`Flows::hold`], of those that were first answered by an identity that `stays`: the others may end. The axis
    /// of a target that has no such flow is inconclusive.
    ///
    /// # Errors
    /// The same.
    pub async fn hold_those(
        self,
        cx: &Context,
        window: Duration,
        stays: impl Fn(&str) -> bool,
    ) -> Result<Vec<Attempt>, Halt> {
        let _spent = cx.clock().during(Activity::Hold);
        has_lasted(Instant::now(), window).await;
        let mut opened = self.0;
        let runs = opened.iter_mut().flat_map(|one| one.runs.drain(..));
        let attempts = try_join_all(runs.map(Run::stop)).await?.concat();
        let leaving = flow::answered_first_by(&attempts, |identity| !stays(identity));
        let attempts: Vec<Attempt> = attempts
            .into_iter()
            .filter(|attempt| flow::key(attempt).is_none_or(|key| !leaving.contains(&key)))
            .collect();
        let targets: Vec<Destination> = opened.iter().flat_map(|one| one.targets.clone()).collect();
        let logs = cx.logs().in_the_end(&targets, &attempts).await?;
        let observed = Observed::new(&attempts, &logs, cx.limits().times());
        let mut undecided = Vec::new();
        let each = opened.iter().flat_map(|one| {
            let open = open_targets(cx, &one.targets).into_iter();
            open.map(move |target| (&one.clients, target, &one.limits))
        });
        for (clients, target, limits) in each {
            let staying = staying(clients, &target, &leaving);
            if staying.is_empty() {
                undecided.push(target);
                continue;
            }
            let findings = staying
                .iter()
                .flat_map(|(client, flows)| flow::flows(&observed, &target.flows(client, *flows, limits)));
            cx.axes().judged(&target.axis, findings.collect());
        }
        // After what was found of other targets, which may be of the same axis.
        for target in undecided {
            let why = format!(
                "no flow to {} was answered by a backend that stays",
                target.label()
            );
            cx.axes().inconclusive(&target.axis, why, Vec::new());
        }
        cx.record(
            "unconnected sockets that met more than one backend",
            wandering(&attempts).to_string(),
        );
        Ok(attempts)
    }

    /// Verdict: from the end of the limit on, for T_hold, every exchange of these flows is as their targets permit now, which are
    /// the same but for that. What they showed before decides nothing. Ends them.
    ///
    /// # Errors
    /// If a client ends before, which would be a hole in the window.
    pub async fn hold_moved(
        self,
        cx: &Context,
        clients: &[Client],
        now: &[Destination],
        within: Within,
    ) -> Result<(), Halt> {
        let _spent = cx.clock().during(Activity::Hold);
        has_lasted(within.since, within.limit).await;
        let from_us = now_us();
        has_lasted(Instant::now(), cx.limits().hold).await;
        let mut opened = self.0;
        let runs = opened.iter_mut().flat_map(|one| one.runs.drain(..));
        let mut attempts = try_join_all(runs.map(Run::stop)).await?.concat();
        attempts.retain(|attempt| attempt.start_us >= from_us);
        // Half of what one flow has room for.
        let fewest = half_of(cx.limits().hold, cx.limits().exchange);
        let targets = open_targets(cx, now);
        judge_attempts(cx, clients, &targets, attempts, |_| fewest).await?;
        Ok(())
    }

    /// Control: within the limit the last exchanges of every flow are as its target permits now, of those that are named. An
    /// axis where they are not becomes inconclusive.
    ///
    /// # Errors
    /// If no axis is left.
    pub async fn control(
        &self,
        cx: &Context,
        what: &str,
        now: &[Destination],
        within: Within,
    ) -> Result<(), Halt> {
        let _spent = cx.clock().during(Activity::Control);
        let (_, outside) = self.settle(cx, now, within).await?;
        for (axis, findings) in outside {
            let first = findings.first().map(first_line).unwrap_or_default();
            let why = format!("control failed ({what}) within {:?}: {first}", within.limit);
            cx.axes().inconclusive(&axis, why, findings);
        }
        any_open(cx, now)
    }

    /// Verdict: within the limit every flow comes to be as its target permits now, and every exchange that begins in the T_hold
    /// after that is so, too. The flows go on.
    ///
    /// # Errors
    /// If a log can't be read.
    pub async fn come_to(&self, cx: &Context, now: &[Destination], within: Within) -> Result<(), Halt> {
        let _spent = cx.clock().during(Activity::Hold);
        let (from_us, outside) = self.settle(cx, now, within).await?;
        for axis in now.iter().map(|target| &target.axis) {
            if !outside.contains_key(axis) {
                let took = from_us.saturating_sub(us(within.since));
                cx.record_delay(axis, Duration::from_micros(took), within.limit);
            }
        }
        let hold = cx.limits().hold;
        let until_us = us(Instant::now() + hold);
        // Those that are silent end with the limit of a probe.
        has_lasted(Instant::now(), hold + cx.limits().probe).await;
        // Each waits for what backends log late.
        let judged = self.0.iter().map(async |opened| {
            let targets = open_targets(cx, &opened.of(now));
            let clients: Vec<Client> = opened.clients.iter().map(|(client, _)| client.clone()).collect();
            let attempts = opened.since(from_us, &targets).into_iter();
            let attempts = attempts.filter(|one| one.start_us < until_us).collect();
            let fewest = half_of(hold, opened.limits.exchange).max(1);
            judge_attempts(cx, &clients, &targets, attempts, |_| fewest).await
        });
        try_join_all(judged).await?;
        Ok(())
    }

    /// Looks at the last exchanges of every flow until those that began after the beginning of the limit are as its target
    /// permits now, or the limit has passed. From when on all is to be judged, and which axes were outside then.
    async fn settle(
        &self,
        cx: &Context,
        now: &[Destination],
        within: Within,
    ) -> Result<(u64, BTreeMap<String, Vec<Finding>>), Halt> {
        loop {
            let (began, is_last) = (Instant::now(), within.is_over());
            let (mut from_us, mut outside) = (us(within.since), BTreeMap::<_, Vec<Finding>>::new());
            for opened in &self.0 {
                let targets = open_targets(cx, &opened.of(now));
                let attempts = flow::last(&opened.since(us(within.since), &targets), LAST);
                let first = attempts.iter().map(|attempt| attempt.start_us).max();
                from_us = from_us.max(first.unwrap_or_default());
                let logs = cx.logs().at_a_look(is_last, &targets, &attempts).await?;
                let observed = Observed::new(&attempts, &logs, cx.limits().times());
                for target in &targets {
                    for (client, flows) in &opened.clients {
                        let expectation = target.expectation(client, LAST * *flows as usize);
                        let findings = observed.judge(&expectation);
                        if !findings.is_empty() {
                            outside.entry(target.axis.clone()).or_default().extend(findings);
                        }
                    }
                }
            }
            if outside.is_empty() {
                // Whenever they were looked at, those that began after the limit decide.
                return Ok((from_us.min(us(within.since + within.limit)), outside));
            }
            if is_last {
                return Ok((now_us(), outside));
            }
            has_lasted(began, LOOK.max(within.since.elapsed().mul_f64(PATIENCE))).await;
        }
    }

    /// The same flows, of which this is permitted from now on, and has been since they began.
    pub fn permitting(mut self, permitted: &Permitted) -> Self {
        for opened in &mut self.0 {
            opened.targets = permitting(&opened.targets, permitted);
        }
        self
    }

    /// Records how their exchanges have ended so far, for each axis: what is not judged.
    pub fn record_outcomes(&self, cx: &Context, what: &str) {
        for opened in &self.0 {
            for target in &opened.targets {
                let attempts = opened.since(0, slice::from_ref(target));
                let said = observations::line(&observations::outcomes(&attempts));
                cx.record(&format!("{}: {what}", target.axis), said);
            }
        }
    }

    /// Ends them. Returns all exchanges since they began, of which nothing is judged.
    ///
    /// # Errors
    /// If a client has ended before, and they with it.
    pub async fn end(self) -> Result<Vec<Attempt>, Halt> {
        let runs = self.0.into_iter().flat_map(|one| one.runs);
        Ok(try_join_all(runs.map(Run::stop)).await?.concat())
    }

    /// No flows: for those that are opened one after the other.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// These and others, to be held together.
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Whether every target has a flow that was first answered by an identity that `stays`, as far as is known.
    #[must_use]
    pub fn stay(&self, stays: impl Fn(&str) -> bool) -> bool {
        self.0.iter().all(|opened| opened.stay(&stays))
    }
}

impl Opened {
    /// Of these targets, those of its flows.
    fn of(&self, now: &[Destination]) -> Vec<Destination> {
        let is_own = |target: &&Destination| {
            let same = |own: &Destination| own.transport == target.transport && own.label() == target.label();
            self.targets.iter().any(same)
        };
        now.iter().filter(is_own).cloned().collect()
    }

    /// Exchanges of its flows to these targets that have begun since, and ended.
    fn since(&self, from_us: u64, targets: &[Destination]) -> Vec<Attempt> {
        let labels: BTreeSet<(String, Transport)> = targets
            .iter()
            .map(|target| (target.label(), target.transport))
            .collect();
        let is_one =
            |one: &&Attempt| one.start_us >= from_us && labels.contains(&(one.target.clone(), one.transport));
        let of_run = |run: &Run| -> Vec<Attempt> {
            run.with_attempts(|attempts| attempts.iter().filter(is_one).cloned().collect())
        };
        self.runs.iter().flat_map(of_run).collect()
    }

    fn stay(&self, stays: impl Fn(&str) -> bool) -> bool {
        let leaving = |run: &Run| {
            run.with_attempts(|attempts| flow::answered_first_by(attempts, |identity| !stays(identity)))
        };
        let leaving: BTreeSet<FlowKey> = self.runs.iter().flat_map(leaving).collect();
        let mut targets = self.targets.iter();
        targets.all(|target| !staying(&self.clients, target, &leaving).is_empty())
    }

    fn are_answered(&self) -> bool {
        self.clients.iter().zip(&self.runs).all(|((_, flows), run)| {
            let answered = |attempts: &[Attempt], target: &Destination| {
                let label = target.label();
                let mut seen: Vec<u32> = attempts
                    .iter()
                    .filter(|one| one.target == label && one.transport == target.transport)
                    .filter(|one| matches!(one.outcome, Outcome::Answered { .. }))
                    .filter_map(|one| Some(one.exchange?.flow))
                    .collect();
                seen.sort_unstable();
                seen.dedup();
                seen.len() == *flows as usize
            };
            run.with_attempts(|attempts| self.targets.iter().all(|target| answered(attempts, target)))
        })
    }
}

fn established(limits: &Limits, target: &Destination, flows: u32) -> PlanEntry {
    target.established(flows, limits.longest(LONGEST), limits)
}

/// In microseconds since the Unix epoch.
fn us(at: Instant) -> u64 {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let now = now_us();
    now.saturating_sub(micros(at.elapsed())) + micros(at.saturating_duration_since(Instant::now()))
}

/// How many flows to a target each client has without those that are leaving; clients that have none are left out.
fn staying(
    clients: &[(Client, u32)],
    target: &Destination,
    leaving: &BTreeSet<FlowKey>,
) -> Vec<(Client, u32)> {
    let of_client = |(client, flows): &(Client, u32)| {
        let stream = target.stream(client);
        let left = leaving.iter().filter(|key| key.is_of(&stream)).count();
        let flows = flows.saturating_sub(u32::try_from(left).unwrap_or(u32::MAX));
        (flows > 0).then(|| (client.clone(), flows))
    };
    clients.iter().filter_map(of_client).collect()
}

/// How many flows each client has; those that have none are left out.
fn deal(clients: &[Client], each: u32) -> Vec<(Client, u32)> {
    let count = u32::try_from(clients.len()).unwrap_or(u32::MAX).max(1);
    (0..)
        .zip(clients)
        .map(|(at, client)| (client.clone(), each / count + u32::from(at < each % count)))
        .filter(|(_, flows)| *flows > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use cluster::Place;
    use oracle::history::{Exchange, Stage};

    use super::*;

    #[test]
    fn a_client_whose_flows_to_a_target_all_leave_has_none_that_stay() {
        let target = Destination::serves("a", "t", Transport::Tcp, "10.0.0.1:80".parse().unwrap(), []);
        let left = |client: &str, flow| {
            let attempt = Attempt {
                start_us: 0,
                end_us: 1,
                client: client.to_owned(),
                target: target.label(),
                transport: target.transport,
                destination: target.address,
                local: None,
                nonce: String::new(),
                exchange: Some(Exchange {
                    flow,
                    socket: 0,
                    sequence: 0,
                }),
                fragments: None,
                outcome: Outcome::Timeout {
                    stage: Stage::Connect,
                },
            };
            flow::key(&attempt).unwrap()
        };
        let clients: Vec<(Client, u32)> = clients(["a", "b"]).map(|client| (client, 2)).to_vec();
        let leaving = BTreeSet::from([left("a", 0), left("a", 1), left("b", 1)]);
        let left = staying(&clients, &target, &leaving);
        assert_eq!(left, [(clients[1].0.clone(), 1)]);
        let other = Destination::serves("a", "other", Transport::Tcp, target.address, []);
        assert_eq!(staying(&clients, &other, &leaving), clients);
    }

    fn clients<const N: usize>(names: [&str; N]) -> [Client; N] {
        names.map(|name| Client {
            name: name.to_owned(),
            node: name.to_owned(),
            place: Place::Outside,
            private_cgroups: false,
        })
    }

    #[test]
    fn flows_are_dealt_in_turn() {
        let clients = clients(["a", "b", "c", "d"]);
        let numbers = |each| -> Vec<u32> { deal(&clients, each).iter().map(|(_, flows)| *flows).collect() };
        assert_eq!(numbers(10), [3, 3, 2, 2]);
        assert_eq!(numbers(2), [1, 1]);
        assert_eq!(deal(&[], 10), []);
    }
}
