//! One run: staging and control, writes and faults at their times, heal, final reads, verdict.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use faults::{LeftoverPrograms, Remains};
use harness::{
    background::Background,
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    history::now_us,
    objects_left, probing, programmed,
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::{
    chaos::{Broken, ChaosHistory, Disturbance, Tolerance, UsedFlow, judge},
    check::{PROBES_PER_BACKEND, Permitted},
    finding::{Finding, SHOWN, Weight},
    history::{Attempt, Transport},
};

use super::{
    faults::{lane, prepare},
    objects::{Dialled, Expected, Staged},
    schedule::{Action, Does, Schedule},
    world::World,
};

/// The axis of what clients see from the control to the heal, and that of what they see when all is healed.
pub const MEANWHILE: &str = "while faults come and go";
/// The axis of the final reads.
pub const HEALED: &str = "when all is healed";
/// From one probe of a client to the next at the same frontend.
const PACE: Duration = Duration::from_millis(150);
/// From one exchange on an established connection to the next.
const EXCHANGE: Duration = Duration::from_millis(500);
/// The window by which the harness reckons this pace: it has room for twice the fewest probes that decide a frontend.
const WINDOW: Duration = PACE.saturating_mul(2 * PROBES_PER_BACKEND as u32);
/// Fewer attempts that decide something show nothing.
const ENOUGH: usize = 200;

/// Plays a schedule in the cluster of a case, and judges what its clients saw. Returns that. `brief`: without final reads if
/// something broke before.
///
/// # Errors
/// What kept it from being played to its end: then nothing is decided.
pub async fn play(cx: &Context, schedule: &Schedule, brief: bool) -> Result<ChaosHistory, Halt> {
    cx.phase("staging: Services, slices and backends");
    prepare(cx, schedule).await?;
    let mut staged = Staged::create(cx, schedule.seed).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("control: every frontend serves its backends");
    let everyone = clients(cx);
    let groups = reads(&staged, MEANWHILE, &everyone);
    for (clients, targets) in &groups {
        probing::control(cx, "all serve", clients, targets, within).await?;
    }

    let mut established = established(cx, &groups, within).await?;
    let held = held(cx).await?;
    let flows = cx.answered_flows().into_iter();
    let flows: BTreeSet<UsedFlow> = flows
        .map(|(node, port, destination)| UsedFlow {
            node,
            port,
            destination,
        })
        .collect();

    cx.phase("chaos: Services change, and faults come and go");
    let mut windows = Vec::new();
    for (clients, targets) in groups {
        let interval = PACE / u32::try_from(targets.len().max(1)).unwrap_or(u32::MAX);
        // Judged by the history alone, whatever they serve now.
        let open = |target: Destination| Destination {
            permitted: Permitted::None,
            ..target
        };
        let targets: Vec<_> = targets.into_iter().map(open).collect();
        windows.push(Background::every(cx, &clients, &targets, interval, WINDOW).await?);
    }
    let (began, began_us) = (Instant::now(), now_us());
    let of_api = lane(cx, &schedule.actions, true, began);
    let of_nodes = lane(cx, &schedule.actions, false, began);
    let lasts = async {
        has_lasted(began, Duration::from_millis(schedule.lasts_ms.into())).await;
        Ok(())
    };
    let writes = writes(&mut staged, &schedule.actions, began);
    let (of_api, of_nodes, (), ()) = futures::future::try_join4(of_api, of_nodes, writes, lasts).await?;

    let mut attempts = Vec::new();
    let mut disturbances = Vec::new();
    let mut left = Vec::new();
    for made in of_api.into_iter().chain(of_nodes) {
        disturbances.push(made.disturbance);
        left.extend(made.left);
    }
    if brief {
        for window in std::mem::take(&mut windows) {
            attempts.extend(window.end().await?);
        }
        attempts.extend(std::mem::replace(&mut established, Flows::none()).end().await?);
        let history = history(cx, &staged, (began_us, &flows), &disturbances, attempts).await?;
        if !judge(&history).attempts.is_empty() {
            heal(cx, left).await?;
            verdict(cx, &history);
            return Ok(history);
        }
        attempts = history.attempts;
    }

    cx.phase("heal and final reads: every frontend is as the API says, on every node");
    let within = Within::from_now(cx.limits().heal);
    for (clients, targets) in reads(&staged, HEALED, &everyone) {
        probing::judge_briefly(cx, &clients, &targets, within).await?;
    }
    for window in windows {
        attempts.extend(window.end().await?);
    }
    attempts.extend(established.end().await?);
    heal(cx, left).await?;

    cx.phase("verdict: what clients saw against the order of the API");
    let history = history(cx, &staged, (began_us, &flows), &disturbances, attempts).await?;
    verdict(cx, &history);

    cx.phase("verdict: agents have programmed what the API lists, and nothing else");
    let within = Within::from_now(cx.limits().heal);
    for node in cx.nodes() {
        programmed::judge(cx, &format!("what {node} has programmed"), &node, within).await?;
    }

    cx.phase("verdict: where all is as in the beginning, nodes hold no more than then");
    for call in staged.world().calls_to(&World::first()) {
        staged.call(&call).await?;
    }
    for (node, before) in &held {
        let within = Within::from_now(cx.limits().heal + cx.limits().hold);
        let axis = format!("what {node} holds in the end");
        objects_left::judge(cx, &axis, (node, before), within, "all was as in the beginning").await?;
    }
    Ok(history)
}

/// What nodes hold: nothing of those on which nothing of the implementation can be counted.
async fn held(cx: &Context) -> Result<Vec<(String, Remains)>, Halt> {
    let mut all = Vec::new();
    for node in cx.nodes() {
        let held = Remains::with_contents(cx.cluster(), &node).await?;
        cx.record(&format!("what {node} holds in the beginning"), held.to_string());
        if !held.is_empty() {
            all.push((node, held));
        }
    }
    Ok(all)
}

/// A connection to every frontend of TCP, dealt to the clients in turn, which goes on until the end.
async fn established(
    cx: &Context,
    groups: &[(Vec<Client>, Vec<Destination>)],
    within: Within,
) -> Result<Flows, Halt> {
    let mut all = Flows::none();
    for (clients, targets) in groups {
        let is_tcp = |target: &&Destination| target.transport == Transport::Tcp;
        let targets: Vec<_> = targets.iter().filter(is_tcp).cloned().collect();
        all = all.and(Flows::open_every(cx, clients, &targets, 1, EXCHANGE, within).await?);
    }
    Ok(all)
}

/// Removes what was left over until now: the agent had to cope with it.
async fn heal(cx: &Context, left: Vec<LeftoverPrograms>) -> Result<(), Halt> {
    for left in left {
        let ids = left.heal().await?;
        cx.fault(&format!(
            "over: programs of a former load; still attached: {ids:?}"
        ));
    }
    Ok(())
}

/// What was seen so far.
async fn history(
    cx: &Context,
    staged: &Staged<'_>,
    (began_us, flows): (u64, &BTreeSet<UsedFlow>),
    disturbances: &[Disturbance],
    attempts: Vec<Attempt>,
) -> Result<ChaosHistory, Halt> {
    let clients = clients(cx);
    let reached = cx.logs().reached(&attempts).await?;
    let name = |dialled: &Dialled| dialled.destination(MEANWHILE, Expected::default()).label();
    Ok(ChaosHistory {
        began_us,
        frontends: staged.frontends(&clients, name),
        endpoints: staged.endpoints(),
        disturbances: disturbances.to_vec(),
        tolerance: Tolerance::new(cx.limits().endpoints, cx.limits().heal),
        clients: clients
            .iter()
            .map(|client| (client.name.clone(), client.node.clone()))
            .collect(),
        flows: flows.clone(),
        attempts,
        reached,
    })
}

/// Those inside and the one outside.
fn clients(cx: &Context) -> Vec<Client> {
    let inside = cx.clients().iter().cloned();
    inside.chain(cx.clients().outside()).collect()
}

/// Who dials what, all of which must be as the API says now: everything from inside, and from outside what is for that. Clients that
/// get the same are together.
fn reads(staged: &Staged<'_>, axis: &str, clients: &[Client]) -> Vec<(Vec<Client>, Vec<Destination>)> {
    let all = staged.dialled();
    let mut groups: BTreeMap<Vec<Option<Expected>>, Vec<Client>> = BTreeMap::new();
    for client in clients {
        let expected = |dialled: &Dialled| {
            let is_dialled = !client.node.is_empty() || dialled.is_for_outside();
            is_dialled.then(|| staged.expected(dialled, client)).flatten()
        };
        let of_each = all.iter().map(expected).collect();
        groups.entry(of_each).or_default().push(client.clone());
    }
    let targets = |of_each: Vec<Option<Expected>>| {
        let dialled = all.iter().zip(of_each);
        dialled
            .filter_map(|(dialled, expected)| Some(dialled.destination(axis, expected?)))
            .collect()
    };
    groups
        .into_iter()
        .map(|(of_each, clients)| (clients, targets(of_each)))
        .collect()
}

async fn writes(staged: &mut Staged<'_>, actions: &[Action], began: Instant) -> Result<(), Halt> {
    for action in actions {
        if matches!(action.does, Does::Fault(_)) {
            continue;
        }
        has_lasted(began, Duration::from_millis(action.at_ms.into())).await;
        for call in staged.world().calls(&action.does) {
            staged.call(&call).await?;
        }
    }
    Ok(())
}

/// Judges a history into the axes of a case.
fn verdict(cx: &Context, history: &ChaosHistory) {
    let outside = judge(history);
    cx.record("attempts that decide", outside.judged.to_string());
    cx.record(
        "attempts that go on with a flow of before",
        outside.undecided.to_string(),
    );
    cx.record("failed while a fault excuses that", outside.excused.to_string());
    for disturbance in &history.disturbances {
        let took = disturbance.until_us.saturating_sub(disturbance.from_us);
        cx.record(&disturbance.what, format!("{} ms", took / 1000));
    }
    if outside.judged < ENOUGH {
        let why = format!("{} attempts decide something, and {ENOUGH} must", outside.judged);
        cx.axes().inconclusive(MEANWHILE, why, Vec::new());
        return;
    }
    cx.axes().judged(MEANWHILE, findings(history));
}

/// What is outside of what is permitted, as findings: the earliest first.
#[must_use]
pub fn findings(history: &ChaosHistory) -> Vec<Finding> {
    let outside = judge(history);
    let mut all: Vec<_> = outside.attempts.iter().collect();
    all.sort_by_key(|(_, attempts)| attempts.first().map(|one| one.start_us));
    all.into_iter()
        .map(|((broken, client, target), attempts)| finding(history, *broken, client, target, attempts))
        .collect()
}

fn finding(
    history: &ChaosHistory,
    broken: Broken,
    client: &str,
    target: &str,
    attempts: &[&Attempt],
) -> Finding {
    let first = attempts.first();
    let at = first.map_or(0, |one| one.start_us);
    let of = |one: &&oracle::chaos::Frontend| {
        one.target == target && first.is_some_and(|first| first.transport == one.transport)
    };
    let state = history
        .frontends
        .iter()
        .find(of)
        .and_then(|frontend| frontend.states.iter().rev().find(|state| state.done_us <= at));
    let since = state.map_or_else(
        || "without any change of it".to_owned(),
        |state| {
            let since = at.saturating_sub(state.done_us) as f64 / 1e6;
            format!("the first {since:.1} s after {}", state.by)
        },
    );
    let transport = first.map_or("", |first| oracle::finding::transport(first.transport));
    Finding {
        weight: Weight::Violation,
        subject: format!("{target} {transport} from {client}"),
        expected: broken.expected().to_owned(),
        found: format!("{} attempts {}, {since}", attempts.len(), broken.found()),
        first: attempts.iter().take(SHOWN).map(|one| (*one).clone()).collect(),
        counted: None,
    }
}
