//! `overflow-old-survive`: Services come to have more endpoints than a node of the target can hold, as its file says. A Service
//! that was served before never fails, and none is answered by another's backends. Once the Services are deleted, all that is left
//! is served as listed, without a restart.
//!
//! The last Services are ever smaller, so that they fill what is left, and the ones that come then have one endpoint each that no
//! other has: that not all of these are served shows that the limit is exceeded. Until it is not any more, no fence passes.
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use cluster::{Capability, Family};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontends::{self, Frontends},
    names::Key,
    pods::{Backend, endpoints},
    probing::identities,
    target_needs::OfTarget,
    vantages::Vantages,
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

use super::listed::TARGET;

pub(crate) const CASE: Case = Case {
    id: "overflow-old-survive",
    area: super::AREA,
    claims: &["overflow-old-survive"],
    sentence: "Services of more endpoints than a node can hold do not harm those that were served before",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::ThousandsOfServices],
        target: &[OfTarget::MostEndpoints],
    },
    disruptive: true,
    manifest: include_str!("scale_canary_latency.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::from_secs(60),
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
/// Most endpoints of an EndpointSlice (its validation in the API).
const OF_SLICE: usize = 1_000;
/// Endpoints of the Services that follow, and how many of each: what the ones before leave.
const SMALLER: [usize; 3] = [100, 10, 1];
const OF_EACH: usize = 10;
const AT_ONCE: usize = 16;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service that is served");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2", "b3", "b4"], &[TARGET], &[]).await?;
    let (served, fresh) = backends.split_at(2);
    let old = services(cx, &namespace, "old", &[served]).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let old = dialled(cx, &old, "served before", |_| served);
    old.control(cx, "it is served", within).await?;
    let agents = agents::all(cx).await?;

    cx.phase("fault: Services of more endpoints than a node can hold, under probes of the one before");
    let window = old.start(cx, cx.limits().hold).await?;
    let most = cx.cluster().describe().most_endpoints;
    let most = most.map_or(0, |most| most.get() as usize);
    let fillers = fill(cx, &namespace, most).await?;
    // Nothing tells when agents have read them all: as long as a change may take.
    has_lasted(Instant::now(), cx.limits().endpoints).await;
    let each: Vec<&[Backend]> = fresh.chunks(1).collect();
    let new = services(cx, &namespace, "new", &each).await?;
    let of_its_own = |number: usize| each[number % each.len()];
    let new = dialled(cx, &new, "new ones", of_its_own);
    let is_overflow = !new.settles(cx, Within::from_now(cx.limits().service)).await?;
    window.hold(cx).await?;
    if !is_overflow {
        return Err(Halt::Inconclusive(format!(
            "new Services are served beside Services of more than {most} endpoints, the most that the target's file names"
        )));
    }

    cx.phase("verdict: the one before never fails, and new ones are answered by none but their own");
    let own = identities(fresh, Transport::Tcp, TARGET);
    let apart = new.clone().permitting(&Permitted::ServesOrNone(own));
    let windows = [
        old.start(cx, cx.limits().hold).await?,
        apart.start(cx, cx.limits().hold).await?,
    ];
    try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;

    cx.phase("verdict: once the others are gone, all are served as listed");
    let window = old.start(cx, cx.limits().hold).await?;
    let deletions = stream::iter(fillers).map(|filler| async move { delete(cx, &filler).await });
    deletions.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let within = Within::from_now(cx.limits().heal);
    new.judge(cx, within).await?;
    window.hold(cx).await?;
    for axis in cx.families().iter().map(|family| format!("{family}, new ones")) {
        agents::no_restart(cx, &axis, agents.as_ref()).await?;
    }
    Ok(())
}

/// A Service for each of these sets of backends, in each family.
async fn services(
    cx: &Context,
    namespace: &str,
    name: &str,
    sets: &[&[Backend]],
) -> Result<Vec<Frontends>, Halt> {
    let mut all = Vec::new();
    for family in cx.families() {
        for (number, set) in sets.iter().enumerate() {
            let service = format!("{name}{number}-{family}").to_lowercase();
            all.push(create(cx, namespace, &service, family, endpoints(*set, family)?).await?);
        }
    }
    Ok(all)
}

async fn create(
    cx: &Context,
    namespace: &str,
    service: &str,
    family: Family,
    endpoints: Value,
) -> Result<Frontends, Halt> {
    let values = json!({
        "namespace": namespace, "service": service, "port": PORT, "target": TARGET, "endpoints": endpoints,
    });
    Frontends::create(cx, family, values).await
}

/// Services with more endpoints than this, none of which is a pod's.
async fn fill(cx: &Context, namespace: &str, most: usize) -> Result<Vec<Frontends>, Halt> {
    let family = cx.families()[0];
    let sizes = vec![OF_SLICE; most / OF_SLICE + 1].into_iter();
    let sizes = sizes.chain(SMALLER.into_iter().flat_map(|size| vec![size; OF_EACH]));
    let mut next = 0;
    let filler = |(number, size): (usize, usize)| {
        let first = next;
        next += size;
        let listed: Vec<Value> = (first..next).map(|number| endpoint(family, number)).collect();
        (format!("filler{number}"), Value::from(listed))
    };
    let fillers: Vec<_> = sizes.enumerate().map(filler).collect();
    cx.record(
        "endpoints of all Services",
        format!("{next}, of which a node can hold {most}"),
    );
    stream::iter(fillers)
        .map(|(service, listed)| async move { create(cx, namespace, &service, family, listed).await })
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// An endpoint without a pod: its address is of a network that is kept for benchmarks (RFC 2544, RFC 5180).
fn endpoint(family: Family, number: usize) -> Value {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let address = match family {
        Family::IPv4 => IpAddr::V4(Ipv4Addr::from_bits(
            Ipv4Addr::new(198, 18, 0, 0).to_bits() + number,
        )),
        Family::IPv6 => {
            let network = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).to_bits();
            IpAddr::V6(Ipv6Addr::from_bits(network + u128::from(number)))
        }
    };
    json!({ "addresses": [address], "conditions": { "ready": true } })
}

async fn delete(cx: &Context, filler: &Frontends) -> Result<(), Halt> {
    let Key { namespace, name, .. } = &filler.service;
    cx.objects().delete(&Key::slice(namespace, name)).await?;
    cx.objects().delete(&filler.service).await.map(drop)
}

/// Their ClusterIPs, each of which must be served by its own.
fn dialled<'a>(
    cx: &Context,
    services: &[Frontends],
    axis: &str,
    by: impl Fn(usize) -> &'a [Backend],
) -> Vantages {
    let at = |(number, service): (usize, &Frontends)| {
        let axis = format!("{}, {axis}", service.family);
        let by = identities(by(number), Transport::Tcp, TARGET);
        service.at_cluster_ip(&axis, Transport::Tcp, PORT, &by)
    };
    let targets = services.iter().enumerate().map(at).collect();
    Vantages::from_iter([(cx.clients().to_vec(), targets)])
}
