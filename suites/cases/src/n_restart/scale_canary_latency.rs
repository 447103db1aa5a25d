//! `scale-canary-latency`: a cluster has 5,000 Services of two endpoints each, and ten of them change each second. An
//! endpoint that is added to the canary's slice is served by every node within the endpoint propagation limit; a removed
//! endpoint is not served after that limit. No connection to unchanged Services fails.
//!
//! The last changed Services are checked at the end, because an agent that skips changes would be fast with the canary.
//! The report has the time of each change on each node.
use std::{
    collections::BTreeMap,
    pin::pin,
    time::{Duration, Instant},
};

use cluster::{Capability, Family};
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{Either, select, try_join_all},
    stream,
};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    names::Key,
    pods::{Backend, endpoints},
    probing::{self, identities},
    vantages::Vantages,
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::history::Transport;
use serde_json::json;

use super::listed::TARGET;

pub(crate) const CASE: Case = Case {
    id: "scale-canary-latency",
    area: super::AREA,
    claims: &["scale-canary-latency"],
    sentence: "among 5,000 Services, ten of which change each second, an endpoint is added and removed in time",
    tier: Tier::Core,
    features: &["scale"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::ThousandsOfServices],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("scale_canary_latency.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::from_secs(30),
    run: |cx| Box::pin(run(cx)),
};

const SERVICES: usize = 5_000;
const AT_ONCE: usize = 64;
/// From one change to the next.
const CHANGE: Duration = Duration::from_millis(100);
/// A run with a smaller share of the planned changes is inconclusive.
const LOAD: f64 = 0.8;
/// How often the canary's endpoint is added, and removed.
const ROUNDS: usize = 10;
/// Number of unchanged Services, and of changed Services, that are probed.
const WATCHED: usize = 20;
const PORT: u16 = 7480;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: 5,000 Services of two endpoints");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[]).await?;
    let families = cx.families();
    let create = async |name: String, family: Family, listed: &[Backend]| {
        let values = json!({
            "namespace": namespace, "service": name, "port": PORT, "target": TARGET,
            "endpoints": endpoints(listed, family)?,
        });
        Frontends::create(cx, family, values).await
    };
    let began = Instant::now();
    let numbers = stream::iter(0..SERVICES);
    let all: Vec<Frontends> = numbers
        .map(|number| create(format!("s{number}"), families[number % families.len()], &backends))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    cx.record(
        "creation of all Services",
        format!("{:.1} s", began.elapsed().as_secs_f64()),
    );
    let mut canaries = Vec::new();
    for family in &families {
        canaries.push(create(format!("canary-{family}").to_lowercase(), *family, &backends[..1]).await?);
    }
    let (untouched, changing) = all.split_at(WATCHED);
    let dialled = |services: &[Frontends], axis: &str, by: &[Backend]| -> Vec<Destination> {
        let by = identities(by, Transport::Tcp, TARGET);
        let at = |service: &Frontends| {
            let axis = format!("{}, {axis}", service.family);
            service.at_cluster_ip(&axis, Transport::Tcp, PORT, &by)
        };
        services.iter().map(at).collect()
    };
    let within = Within::from_now(cx.limits().heal);
    fence::pass(cx).await?;
    let inside = |targets| Vantages::from_iter([(cx.clients().to_vec(), targets)]);
    let stays = inside(dialled(untouched, "unchanged Services", &backends));
    stays.control(cx, "the first of many are served", within).await?;
    inside(dialled(&canaries, "canary", &backends[..1]))
        .control(cx, "the canary is served", within)
        .await?;

    cx.phase("verdict: an endpoint comes and goes in time, while others change");
    let windows = stays.start(cx, cx.limits().hold).await?;
    let began = Instant::now();
    let mut changed: u32 = 0;
    let of_both = [&backends[..1], &backends[..]];
    // Each pass over the Services removes an endpoint, or adds it again.
    let change = |number: u32| {
        let number = number as usize;
        let service = &changing[number % changing.len()];
        (
            std::slice::from_ref(service),
            of_both[number / changing.len() % 2],
        )
    };
    let rounds = async {
        let mut took: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
        let is_open = |target: &Destination| cx.axes().is_open(&target.axis);
        for (what, listed) in (0..ROUNDS).flat_map(|_| [("added", of_both[1]), ("removed", of_both[0])]) {
            list(cx, &canaries, listed).await?;
            let within = Within::from_now(cx.limits().endpoints);
            let mut targets = dialled(&canaries, "canary", listed);
            targets.retain(is_open);
            if targets.is_empty() {
                break;
            }
            let nodes = cx.nodes();
            let each = nodes.iter().map(async |node| {
                let clients: Vec<Client> = cx.clients().on(node);
                Ok::<_, Halt>((
                    node.clone(),
                    probing::settle(cx, &clients, &targets, within).await?,
                ))
            });
            for (node, settled) in try_join_all(each).await? {
                let delays = took.entry(format!("endpoint {what}, {node}")).or_default();
                delays.extend(settled.took());
            }
            inside(targets).judge_briefly(cx, within).await?;
        }
        Ok::<_, Halt>(took)
    };
    let changes = async {
        loop {
            let (service, listed) = change(changed);
            list(cx, service, listed).await?;
            changed += 1;
            has_lasted(began, CHANGE * changed).await;
        }
    };
    let took = match select(pin!(rounds), pin!(changes)).await {
        Either::Left((took, _)) => took?,
        Either::Right((failed, _)) => return failed,
    };
    let lasted = began.elapsed();
    for (what, delays) in &took {
        cx.record(what, spread(delays));
    }
    windows.hold(cx).await?;

    cx.phase("verdict: the last changed Services are served as listed");
    // The write after these may have been under way when the rounds ended.
    let last = (0..changed).rev().take(WATCHED).map(change);
    let changed_last = last
        .flat_map(|(service, listed)| dialled(service, "changed Services", listed))
        .collect();
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    inside(changed_last).judge_briefly(cx, within).await?;
    let per_second = f64::from(changed) / lasted.as_secs_f64();
    cx.record(
        "changes of other Services",
        format!("{changed}, {per_second:.1} a second"),
    );
    if per_second < LOAD / CHANGE.as_secs_f64() {
        let why = format!("{per_second:.1} changes a second: the API took no more");
        for family in &families {
            cx.axes()
                .inconclusive(&format!("{family}, canary"), why.clone(), Vec::new());
        }
    }
    Ok(())
}

/// Makes the slices of Services list these.
async fn list(cx: &Context, services: &[Frontends], listed: &[Backend]) -> Result<(), Halt> {
    for service in services {
        let slice = Key::slice(&service.service.namespace, &service.service.name);
        let patch = json!({ "endpoints": endpoints(listed, service.family)? });
        cx.objects().patch(&slice, patch).await?;
    }
    Ok(())
}

/// Minimum, maximum and median of the times from the API's answer to the first round of probes that all see the change.
fn spread(delays: &[Duration]) -> String {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    match (sorted.first(), sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(minimum), Some(median), Some(maximum)) => format!(
            "{} times: {} to {} ms, median {} ms",
            sorted.len(),
            minimum.as_millis(),
            maximum.as_millis(),
            median.as_millis()
        ),
        _ => "never within the limit".to_owned(),
    }
}
