//! `empty-refill-no-restart`: an ordinary Service is emptied for 0.1, 1 and 60 s and refilled, 50 times. After every
//! refill it serves exactly its EndpointSlice within the endpoint propagation limit, on every node, without a restart
//! and another write.
//!
//! The 50 refills of a delay are spread over Services that run concurrently: 5 Services with 10 rounds for 0.1 and 1 s,
//! 25 with 2 for 60 s, which one by one would take an hour. After every refill the fewest probes that show the set
//! decide (14 for each backend, from every client and node), after the last one N. For delays of 1 s and more the
//! emptying must be seen as a refusal at least once, and the suite's own watch must show each empty version. No fence:
//! it would be another write.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use cluster::{AgentState, Family};
use futures::future::try_join_all;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    names::Key,
    objects::Written,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::{Within, has_lasted},
    write_effect::{self, Effect},
};
use oracle::{
    check::is_refusal,
    finding::{Finding, Weight},
    history::{PlanEntry, Transport, Until},
};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "empty-refill-no-restart",
    area: super::AREA,
    claims: &["empty-refill-no-restart"],
    sentence: "a Service that is emptied and refilled serves its EndpointSlice again, each time, on every node",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("empty_refill_no_restart.yaml"),
    longest: Duration::from_secs(900),
    // Emptied twice for 60 s.
    takes_at_least: Duration::from_secs(120),
    run: |cx| Box::pin(run(cx)),
};

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
const PORT: u16 = 7480;
/// Backend port of the first Service; each has its own.
const FIRST_TARGET: u16 = 8000;
/// Interval of probes while a Service is empty.
const LOOK: Duration = Duration::from_millis(50);

/// How long, over how many Services, and how often on each.
const DELAYS: [(Duration, usize, usize); 3] = [
    (Duration::from_millis(100), 5, 10),
    (Duration::from_secs(1), 5, 10),
    (Duration::from_secs(60), 25, 2),
];
/// Clients may miss shorter ones.
const SEEN_FROM: Duration = Duration::from_secs(1);

/// The Services of one delay.
struct Group {
    axis: String,
    delay: Duration,
    rounds: usize,
    services: Vec<Staged>,
}

struct Staged {
    vip: IpAddr,
    service: Key,
    slice: Key,
    target: u16,
    endpoints: Value,
    created: [String; 2],
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with two backends each");
    let namespace = cx.namespace().await?;
    let backends = backends(cx, &namespace).await?;
    let mut groups = Vec::new();
    let mut target = FIRST_TARGET;
    for family in cx.families() {
        for (delay, services, rounds) in DELAYS {
            let axis = format!("{family}, emptied for {delay:?}");
            let namespace = cx.namespace().await?;
            let mut staged = Vec::new();
            for number in 0..services {
                staged.push(stage(cx, &namespace, number, target, family, &backends).await?);
                target += 1;
            }
            groups.push(Group {
                axis,
                delay,
                rounds,
                services: staged,
            });
        }
    }

    cx.phase("control: all serve");
    let all: Vec<Destination> = groups.iter().flat_map(|group| group.targets(&backends)).collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(
        cx,
        "all serve before they are emptied",
        cx.clients(),
        &all,
        within,
    )
    .await?;

    let agents = agents::all(cx).await?;
    cx.phase("emptied and refilled, 50 times for each delay");
    try_join_all(groups.iter().map(|group| rounds(cx, group, &backends))).await?;
    untouched(cx, &groups, agents.as_ref()).await
}

/// All rounds of one delay.
async fn rounds(cx: &Context, group: &Group, backends: &[Backend]) -> Result<(), Halt> {
    let targets = group.targets(backends);
    let mut refused = BTreeMap::new();
    for round in 1..=group.rounds {
        if !cx.axes().is_open(&group.axis) {
            return Ok(());
        }
        let refilled = match empty_and_refill(cx, group, &mut refused).await {
            Err(Halt::Inconclusive(why)) => {
                cx.axes().inconclusive(&group.axis, why, Vec::new());
                return Ok(());
            }
            refilled => refilled?,
        };
        let within = Within::from(refilled, cx.limits().endpoints);
        if round == group.rounds {
            probing::judge(cx, cx.clients(), &targets, within).await?;
        } else {
            probing::judge_briefly(cx, cx.clients(), &targets, within).await?;
        }
    }
    let seen: Vec<String> = refused
        .iter()
        .map(|(node, count)| format!("{count} on {node}"))
        .collect();
    cx.record(
        &format!("{}: refusals seen while empty", group.axis),
        seen.join(", "),
    );
    // An agent may apply a change later than this, within the endpoint propagation limit.
    if group.delay >= cx.limits().endpoints && refused.is_empty() {
        let finding = Finding {
            weight: Weight::Violation,
            subject: group.axis.clone(),
            expected: "refused while it is empty, on some node at least".to_owned(),
            found: format!("no refusal in {} rounds", group.rounds),
            first: Vec::new(),
            counted: None,
        };
        write_effect::breaks(
            cx,
            &group.axis,
            Effect::Emptied,
            "an emptied Service is refused",
            vec![finding],
        );
    }
    Ok(())
}

/// One round of all Services of a group. Returns when the last one was refilled.
async fn empty_and_refill(
    cx: &Context,
    group: &Group,
    refused: &mut BTreeMap<String, usize>,
) -> Result<Instant, Halt> {
    let one = async |staged: &Staged| {
        let emptied = cx
            .objects()
            .patch(&staged.slice, json!({ "endpoints": [] }))
            .await?;
        has_lasted(emptied.at, group.delay).await;
        let refilled = cx
            .objects()
            .patch(&staged.slice, json!({ "endpoints": staged.endpoints }))
            .await?;
        saw_empty(cx, staged, &emptied)?;
        Ok::<_, Halt>(refilled.at)
    };
    let faults = try_join_all(group.services.iter().map(one));
    let (refilled, seen) = if group.delay >= SEEN_FROM {
        futures::try_join!(faults, witness(cx, group))?
    } else {
        (faults.await?, BTreeMap::new())
    };
    for (node, count) in seen {
        *refused.entry(node).or_default() += count;
    }
    refilled
        .into_iter()
        .max()
        .ok_or_else(|| Halt::Harness("a delay without Services".to_owned()))
}

/// The suite's own watch has shown the version that is empty.
fn saw_empty(cx: &Context, staged: &Staged, emptied: &Written) -> Result<(), Halt> {
    let versions = cx.objects().watch().versions(&staged.slice);
    let is_empty = |object: &Value| object["endpoints"].as_array().is_none_or(Vec::is_empty);
    let seen = versions
        .iter()
        .any(|version| version.resource_version == emptied.resource_version && is_empty(&version.object));
    if seen {
        return Ok(());
    }
    Err(Halt::Inconclusive(format!(
        "the suite's own watch does not show {} empty",
        staged.slice
    )))
}

/// Probes from every client until each Service was refused once, or the delay is over. Returns the number of refusals
/// by node.
async fn witness(cx: &Context, group: &Group) -> Result<BTreeMap<String, usize>, Halt> {
    let looks = group.delay.as_millis().div_ceil(LOOK.as_millis());
    let entry = |staged: &Staged| PlanEntry {
        target: format!("[{}] {} while it is empty", group.axis, staged.service),
        transport: Transport::Tcp,
        address: staged.vip,
        port: PORT,
        count: u32::try_from(looks).unwrap_or(u32::MAX),
        interval_ms: u64::try_from(LOOK.as_millis()).unwrap_or(u64::MAX),
        limit_ms: u64::try_from(cx.limits().probe.as_millis()).unwrap_or(u64::MAX),
        until: Some(Until::Refused),
        flows: None,
        source_ports: None,
        at_once: None,
        one_way: false,
    };
    let runs = cx.clients().iter().map(async |client| {
        let entries = group.services.iter().map(entry).collect();
        let attempts = probing::run(cx, client, entries).await?;
        let count = attempts
            .iter()
            .filter(|attempt| is_refusal(&attempt.outcome))
            .count();
        Ok::<_, Halt>((client.node.clone(), count))
    });
    let mut seen = BTreeMap::new();
    for (node, count) in try_join_all(runs)
        .await?
        .into_iter()
        .filter(|(_, count)| *count > 0)
    {
        *seen.entry(node).or_default() += count;
    }
    Ok(seen)
}

/// No restart, and no write but those of the rounds.
async fn untouched(
    cx: &Context,
    groups: &[Group],
    agents: Option<&BTreeMap<String, AgentState>>,
) -> Result<(), Halt> {
    for group in groups {
        agents::no_restart(cx, &group.axis, agents).await?;
        for staged in &group.services {
            let expected = [(&staged.service, 0), (&staged.slice, 2 * group.rounds)];
            for ((key, writes), created) in expected.into_iter().zip(&staged.created) {
                let found = cx.objects().watch().versions_since(key, created)?;
                if cx.axes().is_open(&group.axis) && found != writes {
                    let why = format!("{key} was written {found} times, {writes} of them by this case");
                    cx.axes().inconclusive(&group.axis, why, Vec::new());
                }
            }
        }
    }
    Ok(())
}

impl Group {
    fn targets(&self, backends: &[Backend]) -> Vec<Destination> {
        let of = |staged: &Staged| {
            TRANSPORTS.map(|transport| {
                let expected = identities(backends, transport, staged.target);
                let address = (staged.vip, PORT).into();
                Destination::serves(&self.axis, staged.service.plain(), transport, address, expected)
            })
        };
        self.services.iter().flat_map(of).collect()
    }
}

async fn stage(
    cx: &Context,
    namespace: &str,
    number: usize,
    target: u16,
    family: Family,
    backends: &[Backend],
) -> Result<Staged, Halt> {
    let name = format!("s{number:02}");
    let mut order = backends.to_vec();
    cx.shuffle(&mut order);
    let endpoints = endpoints(&order, family)?;
    let values = json!({
        "service": name, "namespace": namespace, "family": family.to_string(), "target": target,
        "endpoints": endpoints,
    });
    let vip = cx.apply_service("${service}", &values).await?;
    let (service, slice) = (Key::service(namespace, &name), Key::slice(namespace, &name));
    let mut created = [String::new(), String::new()];
    for (key, version) in [&service, &slice].into_iter().zip(&mut created) {
        let object = cx.objects().get(key).await?;
        *version = object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
    }
    Ok(Staged {
        vip,
        service,
        slice,
        target,
        endpoints,
        created,
    })
}

/// A backend on each of the first two nodes, listening on every Service's port.
async fn backends(cx: &Context, namespace: &str) -> Result<Vec<Backend>, Halt> {
    let services: usize = DELAYS.iter().map(|(_, services, _)| services).sum();
    let ports: Vec<u16> = (FIRST_TARGET..).take(services * cx.families().len()).collect();
    let values: Vec<Value> = ["b1", "b2"]
        .into_iter()
        .zip(&cx.nodes())
        .map(|(name, node)| {
            let args = serve(name, namespace, &ports, &ports);
            json!({ "name": name, "namespace": namespace, "node": node, "args": args })
        })
        .collect();
    cx.backends(&values).await
}
