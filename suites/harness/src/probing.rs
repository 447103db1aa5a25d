//! Probing from vantages: control, witness and verdict.
//!
//! All of it begins by *settling*: rounds of the fewest probes that show a target's set, until a round is inside
//! it or the limit has passed. What was settled is what a control or a witness needs; a verdict then takes N more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use oracle::{
    check::{Observed, Permitted, is_foreign},
    finding::{Finding, Weight},
    history::{Attempt, PlanEntry},
    record::{line, outcomes},
    share::shares,
    trap::trap_untouched,
};

use crate::{
    client::{Client, Run},
    context::Context,
    pods::Backend,
    spent::Activity,
    target::{Target, longest, plan, round},
    turns,
    verdict::Halt,
    waiting::has_lasted,
};

/// Of the time that a change has taken so far, from one round of probes to the next: delays are recorded to a tenth, and what
/// never changes is asked for a few dozen times rather than all the while.
const PATIENCE: f64 = 0.1;

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

    fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.since.elapsed())
    }
}

/// What [`Context::settle`] has shown.
#[derive(Debug)]
#[must_use = "what has not settled must become a verdict"]
pub struct Settled {
    /// Of each axis that has not settled: what its last round showed.
    pub(crate) open: BTreeMap<String, Vec<Finding>>,
    /// Axes that have, and when the last round began, after the beginning of the limit: all was inside from then on.
    settled: BTreeSet<String>,
    pub(crate) took: Duration,
    pub(crate) limit: Duration,
}

impl Settled {
    /// Whether and when, in a line, for what is recorded.
    #[must_use]
    pub fn words(&self) -> String {
        match self.open.len() {
            0 => format!("after {} ms", self.took.as_millis()),
            open => format!("not within {:?} by {open} axes", self.limit),
        }
    }
}

impl Context {
    /// Control: the targets behave before the fault, from every client. An axis that does not becomes inconclusive.
    ///
    /// # Errors
    /// If no axis is left.
    pub async fn control(
        &self,
        what: &str,
        clients: &[Client],
        targets: &[Target],
        within: Within,
    ) -> Result<(), Halt> {
        self.must_settle("control failed", what, clients, targets, within)
            .await
    }

    /// Witness: a fault of the suite's own is there (what it has left over decides, what it has cut off is gone), as every
    /// client sees. An axis where it is not seen becomes inconclusive. Of what the target must do, because the API says so,
    /// [`Context::takes_effect`] is the witness.
    ///
    /// # Errors
    /// If no axis is left.
    pub async fn witness(
        &self,
        what: &str,
        clients: &[Client],
        targets: &[Target],
        within: Within,
    ) -> Result<(), Halt> {
        self.must_settle("not witnessed", what, clients, targets, within)
            .await
    }

    async fn must_settle(
        &self,
        otherwise: &str,
        what: &str,
        clients: &[Client],
        targets: &[Target],
        within: Within,
    ) -> Result<(), Halt> {
        let _spent = self.clock.during(Activity::Control);
        let settled = self.settle(clients, targets, within).await?;
        if settled.open.is_empty() {
            self.record_delay(what, settled.took);
        }
        self.require(&format!("{otherwise} ({what})"), settled);
        self.any_open(targets)
    }

    /// An axis that has not settled becomes inconclusive.
    pub fn require(&self, what: &str, settled: Settled) {
        for (axis, findings) in settled.open {
            let first = findings.first().map(first_line).unwrap_or_default();
            self.inconclusive(
                &axis,
                format!("{what} within {:?}: {first}", settled.limit),
                findings,
            );
        }
    }

    /// Records how long a change took to be seen, for the axes that settled.
    pub fn record_settled(&self, settled: &Settled) {
        for axis in &settled.settled {
            self.record_delay(axis, settled.took);
        }
    }

    /// Verdict: within the limit the targets come to be what is permitted, and then N probes of every client are
    /// inside the set. Returns the N probes.
    pub async fn judge(
        &self,
        clients: &[Client],
        targets: &[Target],
        within: Within,
    ) -> Result<Vec<Attempt>, Halt> {
        let _spent = self.clock.during(Activity::Judging);
        // What has not settled shows in the probes that follow.
        let settled = self.settle(clients, targets, within).await?;
        self.record_settled(&settled);
        let targets = self.open_targets(targets);
        let limits = self.limits();
        let attempts = self.probe(clients, &targets).await?;
        self.judge_attempts(clients, &targets, attempts, |target| target.probes(limits))
            .await
    }

    /// As [`Context::judge`], with the fewest probes that show the set instead of N: for changes that come again and
    /// again.
    pub async fn judge_briefly(
        &self,
        clients: &[Client],
        targets: &[Target],
        within: Within,
    ) -> Result<(), Halt> {
        let _spent = self.clock.during(Activity::Judging);
        let mut settled = self.settle(clients, targets, within).await?;
        self.record_settled(&settled);
        for axis in &settled.settled {
            self.judged(axis, Vec::new());
        }
        for (axis, findings) in std::mem::take(&mut settled.open) {
            self.judged(&axis, findings);
        }
        Ok(())
    }

    /// Judges attempts that have been made, but those that go on with a flow of before to a target that must refuse.
    /// Returns those that were judged.
    pub(crate) async fn judge_attempts(
        &self,
        clients: &[Client],
        targets: &[Target],
        attempts: Vec<Attempt>,
        probes: impl Fn(&Target) -> usize,
    ) -> Result<Vec<Attempt>, Halt> {
        let (attempts, repeated) = self.without_repeated(targets, attempts);
        let left_out = |target: &Target, client: &Client| {
            let stream = target.stream(client);
            let is_of = |attempt: &&Attempt| {
                (&attempt.client, &attempt.target, attempt.transport)
                    == (&stream.client, &stream.target, stream.transport)
            };
            repeated.iter().filter(is_of).count()
        };
        let logs = self.logs_in_the_end(targets, &attempts).await?;
        let observed = Observed::new(&attempts, &logs, self.limits().times());
        for target in targets {
            let expectations = clients.iter().map(|client| {
                let at_least = probes(target).saturating_sub(left_out(target, client));
                target.expectation(client, at_least)
            });
            let findings = expectations
                .flat_map(|expectation| observed.judge(&expectation))
                .collect();
            self.judged(&target.axis, findings);
        }
        self.record_foreign(targets, &attempts);
        self.note_flows(&attempts);
        Ok(attempts)
    }

    /// Records who answered in the place of nobody: an answer by what is no backend is NONE, and told (rule 8 of the catalogue).
    fn record_foreign(&self, targets: &[Target], attempts: &[Attempt]) {
        let dead = targets
            .iter()
            .filter(|target| target.permitted == Permitted::None);
        for target in dead {
            let label = target.label();
            let foreign: Vec<&Attempt> = attempts
                .iter()
                .filter(|attempt| attempt.target == label && attempt.transport == target.transport)
                .filter(|attempt| is_foreign(&attempt.outcome))
                .collect();
            if !foreign.is_empty() {
                let said = line(&outcomes(foreign.iter().copied()));
                let place = format!("{:?} {}", target.transport, target.address);
                self.record(&format!("answered by what is no backend at {place}"), said);
            }
        }
    }

    /// Verdict: of the answers that each client got from a target, each of its backends gave at least this fraction.
    pub fn judge_shares(&self, clients: &[Client], targets: &[Target], attempts: &[Attempt], least: f64) {
        for target in self.open_targets(targets) {
            let Permitted::Serves(identities) = &target.permitted else {
                continue;
            };
            let enough = target.probes(self.limits());
            let of = |client| shares(attempts, &target.stream(client), identities, least, enough);
            self.judged(&target.axis, clients.iter().filter_map(of).collect());
        }
    }

    /// Verdict: none of these attempts has reached the trap.
    pub async fn trap_untouched(&self, axis: &str, attempts: &[Attempt], trap: &Backend) -> Result<(), Halt> {
        let log = self.log(trap).await?;
        let finding = trap_untouched(attempts, &trap.server(), &log);
        self.judged(axis, finding.into_iter().collect());
        Ok(())
    }

    /// Probes until every target of every client settles, or the limit has passed. At least one round.
    pub async fn settle(
        &self,
        clients: &[Client],
        targets: &[Target],
        within: Within,
    ) -> Result<Settled, Halt> {
        let targets = self.open_targets(targets);
        // Client by client, which targets are still outside.
        let mut outside: Vec<(Client, Vec<Target>)> = clients
            .iter()
            .map(|client| (client.clone(), targets.clone()))
            .collect();
        loop {
            let rounds = outside
                .iter()
                .map(|(_, targets)| round(targets, Target::fewest, self.limits()))
                .collect();
            let clients = outside.iter().map(|(client, _)| client);
            let (attempts, began) = self.in_turn(clients, rounds, within.left()).await?;
            let took = began.saturating_duration_since(within.since);
            self.note_flows(&attempts);
            let logs = self.logs_if_needed(&targets, &attempts).await?;
            let observed = Observed::new(&attempts, &logs, self.limits().times());
            self.record_foreign(&targets, &attempts);
            let mut open: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
            for (client, targets) in &mut outside {
                targets.retain(|target| {
                    let mut findings = observed.judge(&target.expectation(client, target.fewest()));
                    findings.sort_by_key(|finding| finding.weight);
                    let is_outside = !findings.is_empty();
                    open.entry(target.axis.clone()).or_default().extend(findings);
                    is_outside
                });
            }
            outside.retain(|(_, targets)| !targets.is_empty());
            open.retain(|_, findings| !findings.is_empty());
            if outside.is_empty() || within.is_over() {
                let settled = targets
                    .iter()
                    .map(|target| target.axis.clone())
                    .filter(|axis| !open.contains_key(axis))
                    .collect();
                return Ok(Settled {
                    open,
                    settled,
                    took,
                    limit: within.limit,
                });
            }
            has_lasted(began, took.mul_f64(PATIENCE)).await;
        }
    }

    /// The fewest probes that show the targets' sets, from one client; judged by nobody.
    pub async fn probe_briefly(&self, client: &Client, targets: &[Target]) -> Result<Vec<Attempt>, Halt> {
        self.run(client, round(targets, Target::fewest, self.limits()))
            .await
    }

    /// N probes to all targets from all clients.
    async fn probe(&self, clients: &[Client], targets: &[Target]) -> Result<Vec<Attempt>, Halt> {
        let limits = self.limits();
        let of_each = round(targets, |target| target.probes(limits), limits);
        let rounds = vec![of_each; clients.len()];
        Ok(self.in_turn(clients, rounds, turns::PATIENCE).await?.0)
    }

    /// Runs entries on a client, to their end.
    pub async fn run(&self, client: &Client, entries: Vec<PlanEntry>) -> Result<Vec<Attempt>, Halt> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let plan = plan(client, entries);
        let limit = longest(&plan);
        Run::start(&self.cluster, client, &plan, self.history.clone())
            .await?
            .finish(limit)
            .await
    }

    /// Targets whose axis has no verdict yet.
    pub(crate) fn open_targets(&self, targets: &[Target]) -> Vec<Target> {
        targets
            .iter()
            .filter(|target| self.is_open(&target.axis))
            .cloned()
            .collect()
    }

    pub(crate) fn any_open(&self, targets: &[Target]) -> Result<(), Halt> {
        if self.open_targets(targets).is_empty() {
            return Err(Halt::Inconclusive(
                "no axis is left that could be decided".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Identities of backends on a port.
pub fn identities<'a>(
    backends: impl IntoIterator<Item = &'a Backend>,
    transport: oracle::history::Transport,
    port: u16,
) -> BTreeSet<String> {
    backends
        .into_iter()
        .map(|backend| backend.identity(transport, port))
        .collect()
}

pub(crate) fn first_line(finding: &Finding) -> String {
    let weight = match finding.weight {
        Weight::Violation => "",
        Weight::Undecided => "(undecided) ",
    };
    format!(
        "{weight}{}",
        finding.to_string().lines().next().unwrap_or_default()
    )
}
