//! Probing from vantages: control, witness and verdict.
//!
//! All of it begins by *settling*: rounds of the fewest probes that show a target's set, until a round is inside
//! it or the limit has passed. What was settled is what a control or a witness needs; a verdict then takes N more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::Place;
use futures::future::try_join_all;
use oracle::{
    check::{Observed, Permitted, is_foreign},
    errors::failed_by,
    finding::Finding,
    history::{Attempt, PlanEntry},
    observations::{line, outcomes},
    share::{shares, spread},
    trap,
    unchanged::{Kept, unchanged},
};

use crate::{
    axes::first_line,
    client::{Client, Run},
    context::Context,
    destination::{Destination, Vantage, longest, permitted_at, round},
    pods::Backend,
    rate_turns,
    time_spent::Activity,
    verdict::Halt,
    waiting::{Within, has_lasted},
};

/// Of the time that a change has taken so far, from one round of probes to the next: delays are recorded to a tenth, and what
/// never changes is asked for a few dozen times rather than all the while.
const PATIENCE: f64 = 0.1;

/// New connections for each backend, from all clients together, by which an even spread is judged: of fewer, chance alone would
/// leave one with less than half of its share.
const SPREAD: usize = 100;

/// What [`settle`] has shown.
#[derive(Debug)]
#[must_use = "what has not settled must become a verdict"]
pub struct Settled {
    /// Of each axis that has not settled: what its last round showed.
    open: BTreeMap<String, Vec<Finding>>,
    /// Axes that have, and when the last round began, after the beginning of the limit: all was inside from then on.
    settled: BTreeSet<String>,
    took: Duration,
    limit: Duration,
}

impl Settled {
    /// How long it took, if all axes have.
    pub fn took(&self) -> Option<Duration> {
        self.open.is_empty().then_some(self.took)
    }

    /// Within what they had to.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Of each axis that has not settled: what its last round showed.
    pub(crate) fn into_open(self) -> BTreeMap<String, Vec<Finding>> {
        self.open
    }

    /// Whether and when, in a line, for what is recorded.
    #[must_use]
    pub fn words(&self) -> String {
        match self.open.len() {
            0 => format!("after {} ms", self.took.as_millis()),
            open => format!("not within {:?} by {open} axes", self.limit),
        }
    }
}

/// Control: the targets behave before the fault, from every client. An axis that does not becomes inconclusive.
///
/// # Errors
/// If no axis is left.
pub async fn control(
    cx: &Context,
    what: &str,
    clients: &[Client],
    targets: &[Destination],
    within: Within,
) -> Result<(), Halt> {
    control_all(cx, what, &group(clients, targets), within).await
}

/// As [`control`], of groups of clients at once, each with its targets.
pub(crate) async fn control_all(
    cx: &Context,
    what: &str,
    groups: &[Vantage],
    within: Within,
) -> Result<(), Halt> {
    must_settle(cx, "control failed", what, groups, within).await
}

/// Witness: a fault of the suite's own is there (what it has left over decides, what it has cut off is gone), as every
/// client sees. An axis where it is not seen becomes inconclusive. Of what the target must do, because the API says so,
/// [`write_effect::takes_effect`](crate::write_effect::takes_effect) is the witness.
///
/// # Errors
/// If no axis is left.
pub async fn witness(
    cx: &Context,
    what: &str,
    clients: &[Client],
    targets: &[Destination],
    within: Within,
) -> Result<(), Halt> {
    must_settle(cx, "not witnessed", what, &group(clients, targets), within).await
}

async fn must_settle(
    cx: &Context,
    otherwise: &str,
    what: &str,
    groups: &[Vantage],
    within: Within,
) -> Result<(), Halt> {
    let _spent = cx.clock().during(Activity::Control);
    let settled = settle_all(cx, groups, within).await?;
    if let Some(took) = settled.took() {
        cx.record_delay(what, took, settled.limit);
    }
    require(cx, &format!("{otherwise} ({what})"), settled);
    any_open(cx, groups.iter().flat_map(|(_, targets)| targets))
}

/// An axis that has not settled becomes inconclusive.
pub fn require(cx: &Context, what: &str, settled: Settled) {
    for (axis, findings) in settled.open {
        let first = findings.first().map(first_line).unwrap_or_default();
        cx.axes().inconclusive(
            &axis,
            format!("{what} within {:?}: {first}", settled.limit),
            findings,
        );
    }
}

/// Records how long a change took to be seen, for the axes that settled.
pub fn record_settled(cx: &Context, settled: &Settled) {
    for axis in &settled.settled {
        cx.record_delay(axis, settled.took, settled.limit);
    }
}

/// Verdict: within the limit the targets come to be what is permitted, and then N probes of every client are
/// inside the set. Returns the N probes.
pub async fn judge(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    within: Within,
) -> Result<Vec<Attempt>, Halt> {
    judge_all(cx, &group(clients, targets), within).await
}

/// As [`judge`], of groups of clients at once, each with its targets.
pub(crate) async fn judge_all(
    cx: &Context,
    groups: &[Vantage],
    within: Within,
) -> Result<Vec<Attempt>, Halt> {
    let _spent = cx.clock().during(Activity::Judging);
    // What has not settled shows in the probes that follow.
    let settled = settle_all(cx, groups, within).await?;
    record_settled(cx, &settled);
    let open = |(clients, targets): &Vantage| (clients.clone(), open_targets(cx, targets));
    let groups: Vec<Vantage> = groups.iter().map(open).collect();
    let attempts = probe(cx, &groups).await?;
    let probes = |target: &Destination| target.probes(cx.limits());
    let judged = groups
        .iter()
        .zip(attempts)
        .map(|((clients, targets), attempts)| judge_attempts(cx, clients, targets, attempts, probes));
    Ok(try_join_all(judged).await?.concat())
}

/// As [`judge`], with the fewest probes that show the set instead of N: for changes that come again and
/// again.
pub async fn judge_briefly(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    within: Within,
) -> Result<(), Halt> {
    judge_all_briefly(cx, &group(clients, targets), within).await
}

/// As [`judge_briefly`], of groups of clients at once, each with its targets.
pub(crate) async fn judge_all_briefly(cx: &Context, groups: &[Vantage], within: Within) -> Result<(), Halt> {
    let _spent = cx.clock().during(Activity::Judging);
    let mut settled = settle_all(cx, groups, within).await?;
    record_settled(cx, &settled);
    for axis in &settled.settled {
        cx.axes().judged(axis, Vec::new());
    }
    for (axis, findings) in std::mem::take(&mut settled.open) {
        cx.axes().judged(&axis, findings);
    }
    Ok(())
}

/// Judges attempts that have been made, but those that go on with a flow of before and so decide nothing
/// ([`KnownFlows::without_repeated`](crate::reused_flows::KnownFlows::without_repeated)).
/// Returns those that were judged.
pub(crate) async fn judge_attempts(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    attempts: Vec<Attempt>,
    probes: impl Fn(&Destination) -> usize,
) -> Result<Vec<Attempt>, Halt> {
    let (attempts, repeated) = cx
        .known_flows()
        .without_repeated(&permitted_at(targets), attempts);
    let left_out = |target: &Destination, client: &Client| {
        let stream = target.stream(client);
        let is_of = |attempt: &&Attempt| {
            (&attempt.client, &attempt.target, attempt.transport)
                == (&stream.client, &stream.target, stream.transport)
        };
        repeated.iter().filter(is_of).count()
    };
    let logs = cx.logs().in_the_end(targets, &attempts).await?;
    let observed = Observed::new(&attempts, &logs, cx.limits().times());
    for target in targets {
        let expectations = clients.iter().map(|client| {
            // Where most go on with flows of before, too few decide.
            let all = probes(target);
            let at_least = all.saturating_sub(left_out(target, client)).max(all.div_ceil(2));
            target.expectation(client, at_least)
        });
        let findings = expectations
            .flat_map(|expectation| observed.judge(&expectation))
            .collect();
        cx.axes().judged(&target.axis, findings);
    }
    record_foreign(cx, targets, &attempts);
    cx.known_flows().add(&attempts);
    Ok(attempts)
}

/// Records answers where no backend may answer: one that is not from a backend counts as NONE, and is recorded (rule 8 of the
/// catalogue).
fn record_foreign(cx: &Context, targets: &[Destination], attempts: &[Attempt]) {
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
            cx.record(&format!("answered by what is no backend at {place}"), said);
        }
    }
}

/// Verdict: attempts of these clients to these targets that failed, failed by this error, such as ECONNREFUSED.
pub fn judge_error(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    attempts: &[Attempt],
    expected: &str,
) {
    for target in open_targets(cx, targets) {
        let of = |client| failed_by(attempts, &target.stream(client), expected);
        cx.axes()
            .judged(&target.axis, clients.iter().filter_map(of).collect());
    }
}

/// Records how attempts ended, which implementations may choose: errno and call, for each transport and place of
/// clients.
pub fn record_endings(cx: &Context, what: &str, attempts: &[Attempt]) {
    let mut groups: BTreeMap<String, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        let place = attempt.client.split('@').next().unwrap_or_default();
        let group = format!("{:?} from {place}", attempt.transport);
        groups.entry(group).or_default().push(attempt);
    }
    for (group, attempts) in groups {
        cx.record(&format!("{what}: {group}"), line(&outcomes(attempts)));
    }
}

/// Verdict: of the answers that each client got from a target, each of its backends gave at least this fraction.
pub fn judge_shares(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    attempts: &[Attempt],
    least: f64,
) {
    for target in open_targets(cx, targets) {
        let Permitted::Serves(identities) = &target.permitted else {
            continue;
        };
        let enough = target.probes(cx.limits());
        let of = |client| shares(attempts, &target.stream(client), identities, least, enough);
        cx.axes()
            .judged(&target.axis, clients.iter().filter_map(of).collect());
    }
}

/// Verdict: of new connections, 100 for each backend of a target, every client is served by all of these, and each of them
/// gets between half and twice its fair share of all clients' together.
pub async fn judge_spread(cx: &Context, clients: &[Client], targets: &[Destination]) -> Result<(), Halt> {
    let _spent = cx.clock().during(Activity::Judging);
    let targets = open_targets(cx, targets);
    let each = |target: &Destination| (SPREAD * target.backends()).div_ceil(clients.len().max(1));
    let rounds = vec![round(&targets, each, cx.limits()); clients.len()];
    let (attempts, _) = in_turn(cx, clients, rounds, rate_turns::PATIENCE).await?;
    let attempts = attempts.into_iter().flatten().collect();
    let attempts = judge_attempts(cx, clients, &targets, attempts, each).await?;
    for target in open_targets(cx, &targets) {
        let Permitted::Serves(identities) = &target.permitted else {
            continue;
        };
        let enough = SPREAD * identities.len();
        let label = target.label();
        let uneven = spread(&attempts, (&label, target.transport), identities, enough);
        cx.axes().judged(&target.axis, uneven.into_iter().collect());
    }
    Ok(())
}

/// Verdict: what these clients sent arrived with the destination that they dialled and, from pods, with their own source. Hosts may
/// send by another address of theirs.
pub fn judge_unchanged(cx: &Context, clients: &[Client], targets: &[Destination], attempts: &[Attempt]) {
    let observed = Observed::new(attempts, &[], cx.limits().times());
    for target in open_targets(cx, targets) {
        let of = |client: &Client| {
            let kept = match client.place {
                Place::Pod { .. } => Kept::Both,
                Place::Host { .. } | Place::Outside => Kept::Destination,
            };
            unchanged(&observed, &target.stream(client), kept, target.fewest())
        };
        let findings = clients.iter().flat_map(of).collect();
        cx.axes().judged(&target.axis, findings);
    }
}

/// Verdict: none of these attempts has reached the trap.
pub async fn trap_untouched(
    cx: &Context,
    axis: &str,
    attempts: &[Attempt],
    trap: &Backend,
) -> Result<(), Halt> {
    let log = cx.logs().of(trap).await?;
    let finding = trap::trap_untouched(attempts, &trap.server(), &log);
    cx.axes().judged(axis, finding.into_iter().collect());
    Ok(())
}

/// Probes until every target of every client settles, or the limit has passed. At least one round.
pub async fn settle(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    within: Within,
) -> Result<Settled, Halt> {
    settle_all(cx, &group(clients, targets), within).await
}

/// As [`settle`], of groups of clients at once, each with its targets.
pub(crate) async fn settle_all(cx: &Context, groups: &[Vantage], within: Within) -> Result<Settled, Halt> {
    // Client by client, which targets are still outside.
    let mut outside: Vec<(Client, Vec<Destination>)> = Vec::new();
    let mut targets = Vec::new();
    for (clients, of_these) in groups {
        let open = open_targets(cx, of_these);
        outside.extend(clients.iter().map(|client| (client.clone(), open.clone())));
        targets.extend(open);
    }
    loop {
        let rounds = outside
            .iter()
            .map(|(_, targets)| round(targets, Destination::fewest, cx.limits()))
            .collect();
        let clients = outside.iter().map(|(client, _)| client);
        let (attempts, began) = in_turn(cx, clients, rounds, within.left()).await?;
        let attempts = attempts.concat();
        let took = began.saturating_duration_since(within.since);
        cx.known_flows().add(&attempts);
        let is_last = within.is_over();
        let logs = cx.logs().at_a_look(is_last, &targets, &attempts).await?;
        let observed = Observed::new(&attempts, &logs, cx.limits().times());
        record_foreign(cx, &targets, &attempts);
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
        if outside.is_empty() || is_last {
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

/// The fewest probes that show the targets' sets, from one client; they are not judged.
pub async fn probe_briefly(
    cx: &Context,
    client: &Client,
    targets: &[Destination],
) -> Result<Vec<Attempt>, Halt> {
    run(cx, client, round(targets, Destination::fewest, cx.limits())).await
}

/// One probe of each target from one client; they are not judged.
pub async fn probe_once(
    cx: &Context,
    client: &Client,
    targets: &[Destination],
) -> Result<Vec<Attempt>, Halt> {
    let each = open_targets(cx, targets);
    run(
        cx,
        client,
        each.iter().map(|target| target.once(cx.limits())).collect(),
    )
    .await
}

/// N probes to all targets from all clients, by their groups.
async fn probe(cx: &Context, groups: &[Vantage]) -> Result<Vec<Vec<Attempt>>, Halt> {
    let limits = cx.limits();
    let of_group = |(clients, targets): &Vantage| {
        let of_each = round(targets, |target| target.probes(limits), limits);
        vec![of_each; clients.len()]
    };
    let rounds = groups.iter().flat_map(of_group).collect();
    let clients = groups.iter().flat_map(|(clients, _)| clients);
    let (attempts, _) = in_turn(cx, clients, rounds, rate_turns::PATIENCE).await?;
    let mut by_client = attempts.into_iter();
    let of_group = |(clients, _): &Vantage| by_client.by_ref().take(clients.len()).flatten().collect();
    Ok(groups.iter().map(of_group).collect())
}

/// A round for each client, when it is its turn, for which it waits so long at most; and when that was. Returns the attempts of
/// each.
async fn in_turn(
    cx: &Context,
    clients: impl IntoIterator<Item = &Client>,
    rounds: Vec<Vec<PlanEntry>>,
    patience: Duration,
) -> Result<(Vec<Vec<Attempt>>, Instant), Halt> {
    let _turn = match cx.turns() {
        Some(turns) => turns.take(&rounds, cx.limits(), patience).await,
        None => None,
    };
    let began = Instant::now();
    let runs = clients
        .into_iter()
        .zip(rounds)
        .map(|(client, round)| run(cx, client, round));
    Ok((try_join_all(runs).await?, began))
}

/// Starts entries on a client.
pub(crate) async fn begin(cx: &Context, client: &Client, entries: Vec<PlanEntry>) -> Result<Run, Halt> {
    let flows = Arc::clone(cx.known_flows());
    Run::start(cx.cluster(), client, entries, Arc::clone(cx.history()), flows).await
}

/// Runs entries on a client, to their end.
pub async fn run(cx: &Context, client: &Client, entries: Vec<PlanEntry>) -> Result<Vec<Attempt>, Halt> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let limit = longest(&entries);
    begin(cx, client, entries).await?.finish(limit).await
}

/// Targets whose axis has no verdict yet.
pub(crate) fn open_targets(cx: &Context, targets: &[Destination]) -> Vec<Destination> {
    targets
        .iter()
        .filter(|target| cx.axes().is_open(&target.axis))
        .cloned()
        .collect()
}

pub(crate) fn any_open<'a>(
    cx: &Context,
    targets: impl IntoIterator<Item = &'a Destination>,
) -> Result<(), Halt> {
    if targets.into_iter().any(|target| cx.axes().is_open(&target.axis)) {
        return Ok(());
    }
    let why = "no axis is left that could be decided".to_owned();
    Err(Halt::Inconclusive(why))
}

/// These clients with these targets as the only group.
pub(crate) fn group(clients: &[Client], targets: &[Destination]) -> [Vantage; 1] {
    [(clients.to_vec(), targets.to_vec())]
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
