//! `all-watches-cut`: every API connection of every agent is reset at once; no object changes. No probe of any Service
//! fails for 5 min, and a canary written after 60 s takes effect within the recovery limit.
//!
//! The kernel of each node resets them, so that the API server gets a RST; the witness is that each agent had
//! connections and has none of them afterwards. One of the Services has several EndpointSlices and, where the cluster
//! has both families, one is dual-stack. 5 min and 60 s hold for the long profile, whose hold time is longer; other
//! profiles scale both by it.
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use cluster::{Capability, Family};
use faults::Connections;
use futures::future::try_join_all;
use harness::{
    agents,
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    names::Key,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::{Within, eventually, has_lasted},
};
use oracle::history::Transport;
use serde_json::{Value, json};

use super::api_endpoint::{Canary, ends};

pub(crate) const CASE: Case = Case {
    id: "all-watches-cut",
    area: super::AREA,
    claims: &["all-watches-cut"],
    sentence: "when every connection of every agent to the API is reset, no Service fails, and later changes take effect",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::ApiServers],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("all_watches_cut.yaml"),
    longest: Duration::from_secs(450),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
const PORT: u16 = 7480;
/// First port of the backends.
const TARGETS: [u16; 3] = [8001, 8002, 8003];
/// The canary is written after this fraction of the hold time: after 60 s of 10 min.
const CANARY: u32 = 10;

/// A Service with two EndpointSlices.
struct Staged {
    service: Key,
    slices: Vec<Key>,
    targets: Vec<Destination>,
    /// The newest versions of its objects.
    versions: Vec<String>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with several EndpointSlices, and a canary");
    let namespace = cx.namespace().await?;
    let values: Vec<Value> = ["b1", "b2"]
        .into_iter()
        .zip(cx.nodes().iter().cycle())
        .map(|(name, node)| {
            let args = serve(name, &namespace, &TARGETS, &TARGETS);
            json!({ "name": name, "namespace": namespace, "node": node, "args": args })
        })
        .collect();
    let backends = cx.backends(&values).await?;
    let families = cx.cluster().describe().families();
    let mut sets: Vec<Vec<Family>> = families.iter().map(|family| vec![*family]).collect();
    if families.len() > 1 {
        sets.push(families.clone());
    } else {
        cx.axes()
            .not_enabled("a dual-stack Service", "the cluster has one family");
    }
    let sets = cx.axes().choose(sets, |set| axis(set));
    let mut staged = Vec::new();
    for (number, (set, target)) in sets.iter().zip(TARGETS).enumerate() {
        let name = format!("s{number}");
        staged.push(stage(cx, &namespace, &name, (set.as_slice(), target), &backends).await?);
    }
    let first = *families
        .first()
        .ok_or_else(|| Halt::Harness("no family".to_owned()))?;
    let mut canary = Canary::stage(cx, &namespace, first, &backends[0].node).await?;
    let all: Vec<Destination> = staged.iter().flat_map(|one| one.targets.clone()).collect();

    cx.phase("control: all serve");
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "all serve", cx.clients(), &all, within).await?;
    let axes: BTreeSet<&str> = all.iter().map(|target| target.axis.as_str()).collect();
    let canaries: Vec<Destination> = axes.iter().flat_map(|axis| canary.targets(axis)).collect();
    probing::control(cx, "the canary serves", cx.clients(), &canaries, within).await?;

    cx.phase("fault: every connection of every agent to the API is reset");
    let window = Background::start(cx, cx.clients(), &all, cx.limits().hold).await?;
    let agents = agents::all(cx).await?;
    let to = ends(cx, &[]).await?;
    let processes: Vec<(String, u32)> = agents
        .iter()
        .flatten()
        .filter_map(|(node, agent)| Some((node.clone(), agent.pid?)))
        .collect();
    if processes.len() < cx.nodes().len() {
        return Err(Halt::Inconclusive(
            "not every node has an agent that runs".to_owned(),
        ));
    }
    let cut = Instant::now();
    try_join_all(processes.iter().map(|agent| reset(cx, agent, &to))).await?;
    has_lasted(cut, cx.limits().hold / CANARY).await;

    cx.phase("a canary that is written now takes effect on every node");
    let turned = canary.turn(cx).await?;
    let canaries: Vec<Destination> = axes.iter().flat_map(|axis| canary.targets(axis)).collect();
    let within = Within::from(turned.at, cx.limits().heal);
    probing::judge(cx, cx.clients(), &canaries, within).await?;
    cx.phase("verdict: all serve for the hold time");
    window.hold(cx).await?;
    for one in &staged {
        one.is_unchanged(cx)?;
    }
    for axis in &axes {
        agents::no_restart(cx, axis, agents.as_ref()).await?;
    }
    Ok(())
}

/// Resets the connections of one agent. On return it had some before, and now has others or none.
async fn reset(cx: &Context, (node, process): &(String, u32), to: &[SocketAddr]) -> Result<(), Halt> {
    let cluster = &**cx.cluster();
    let gone = Connections::reset(cluster, node, *process, to).await?.established;
    cx.fault(&format!(
        "connections of the agent of {node} to the API reset: {gone:?}"
    ));
    if gone.is_empty() {
        return Err(Halt::Inconclusive(format!(
            "the agent of {node} had no connection to the API that could be reset: nothing was cut"
        )));
    }
    let within = Within::from_now(cx.limits().endpoints);
    let what = format!("the connections of the agent of {node} are gone");
    eventually(&what, within, async || {
        let found = Connections::of(cluster, node, *process, to).await?;
        Ok(found.established.is_disjoint(&gone).then_some(()))
    })
    .await?;
    cx.record(&format!("connections reset on {node}"), gone.len().to_string());
    Ok(())
}

/// A Service of these families with an EndpointSlice for each backend and family.
async fn stage(
    cx: &Context,
    namespace: &str,
    name: &str,
    (families, target): (&[Family], u16),
    backends: &[Backend],
) -> Result<Staged, Halt> {
    let axis = axis(families);
    let policy = if families.len() > 1 {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    let values = json!({
        "service": name, "namespace": namespace, "families": families, "policy": policy,
    });
    cx.apply_service("${service}", &values).await?;
    let service = Key::service(namespace, name);
    let mut slices = Vec::new();
    for family in families {
        for (number, backend) in backends.iter().enumerate() {
            let slice = format!("{name}-{}-{number}", family.to_string().to_lowercase());
            let values = json!({
                "service": name, "namespace": namespace, "slice": slice, "family": family.to_string(),
                "target": target, "endpoints": endpoints([backend], *family)?,
            });
            cx.apply("${slice}", &values).await?;
            slices.push(Key::slice(namespace, &slice));
        }
    }
    let object = cx.objects().get(&service).await?;
    let addresses: Vec<IpAddr> = object["spec"]["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|address| address.as_str()?.parse().ok())
        .collect();
    if addresses.len() != families.len() {
        return Err(Halt::Harness(format!(
            "{service} has the cluster IPs {addresses:?}, expected one of each of {axis}"
        )));
    }
    let targets = addresses
        .into_iter()
        .flat_map(|address| {
            TRANSPORTS.map(|transport| {
                let expected = identities(backends, transport, target);
                Destination::serves(&axis, name, transport, (address, PORT).into(), expected)
            })
        })
        .collect();
    let mut versions = Vec::new();
    for key in std::iter::once(&service).chain(&slices) {
        let object = cx.objects().get(key).await?;
        let version = object["metadata"]["resourceVersion"].as_str();
        versions.push(version.unwrap_or_default().to_owned());
    }
    Ok(Staged {
        service,
        slices,
        targets,
        versions,
    })
}

fn axis(families: &[Family]) -> String {
    let words: Vec<String> = families.iter().map(Family::to_string).collect();
    words.join(" and ")
}

impl Staged {
    /// Nothing has written it: a write would have shown agents what they must find out by themselves.
    fn is_unchanged(&self, cx: &Context) -> Result<(), Halt> {
        let keys = std::iter::once(&self.service).chain(&self.slices);
        for (key, version) in keys.zip(&self.versions) {
            let writes = cx.objects().watch().versions_since(key, version)?;
            if writes > 0
                && let Some(target) = self.targets.first()
            {
                let why = format!("another client of the API wrote {key} {writes} times");
                cx.axes().inconclusive(&target.axis, why, Vec::new());
            }
        }
        Ok(())
    }
}
