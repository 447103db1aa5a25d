//! `rollout-no-loss`: four pods are replaced three times, node by node: those of a node are deleted, serve on for
//! longer than the endpoint propagation limit, and are replaced as soon as EndpointSlices list them as terminating. At
//! 100 connections a second of each client none fails: from pods through the ClusterIP, and from outside through the
//! node ports of these nodes, under policies `Cluster` and `Local`.
//!
//! Between the deletion and the readiness of the new pods a node has terminating ones alone, once for longer than a client waits
//! for an answer. EndpointSlices are the controller's.
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontends::{Frontends, Vantage},
    pods::{Backend, serve},
    probing::identities,
    vantages::Vantages,
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::{
    check::Permitted,
    history::{Attempt, Outcome, Transport},
};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "rollout-no-loss",
    area: super::AREA,
    claims: &["rollout-no-loss"],
    sentence: "three rolling replacements of pods that wait before they stop lose no connection",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("rollout_no_loss.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::from_secs(3 * ENDS.as_secs()),
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// Nodes with pods, pods of each, and how often they are replaced.
const NODES: usize = 2;
const OF_EACH: usize = 2;
const ROLLOUTS: usize = 3;
/// Grace period of the pods, in which they serve.
const ENDS: Duration = Duration::from_secs(38);
/// For how long a container is served beyond SIGTERM: until it is killed.
const LINGERS: Duration = Duration::from_secs(30);
/// Connections of each client in a second, over all its targets.
const RATE: u32 = 100;
/// So long, after a client's limit, a node has terminating pods alone.
const ALONE: Duration = Duration::from_secs(1);
const POLICIES: [&str; 2] = ["Cluster", "Local"];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services of four pods on two nodes");
    let namespace = cx.namespace().await?;
    let mut current = Vec::new();
    for node in 0..NODES {
        current.push(create(cx, &namespace, 0, node).await?);
    }
    let mut services = Vec::new();
    let policies = cx
        .axes()
        .choose(POLICIES.to_vec(), |policy| format!("policy {policy}"));
    for family in cx.families() {
        for policy in &policies {
            let service = format!("{policy}-{family}").to_lowercase();
            let values = json!({ "namespace": namespace, "service": service, "policy": policy });
            let frontends = Frontends::create(cx, family, values).await?;
            let axis = format!("{family}, policy {policy}");
            services.push(Rolled {
                axis,
                frontends,
                is_local: *policy == "Local",
            });
        }
    }
    let within = Within::from_now(cx.limits().service);
    are_listed(cx, &services, &current).await?;
    fence::pass(cx).await?;
    let exact = dialled(cx, &services, &current)?;
    exact.control(cx, "all four serve", within).await?;

    cx.phase("fault: all pods are replaced, three times");
    let targets = exact.groups().iter().map(|(_, targets)| targets.len()).max();
    let connections = targets.unwrap_or_default() * cx.limits().probes;
    let window = Duration::from_secs(1).mul_f64(connections as f64 / f64::from(RATE));
    let any = exact.permitting(&Permitted::ServesOneOf(identities_of(&namespace, 0)));
    let any = any.start(cx, window).await?;
    for rollout in 1..=ROLLOUTS {
        let mut deleted = Vec::new();
        for node in 0..NODES {
            let old = std::mem::take(&mut current[node]);
            cx.delete_backends(&old).await?;
            // From now on the node has terminating pods alone, until the new ones are ready.
            are_listed(cx, &services, &current).await?;
            if rollout == 1 {
                // Once for longer than a client waits: a SYN that is sent again a second later would be served by the new ones.
                has_lasted(Instant::now(), cx.limits().probe + ALONE).await;
            }
            current[node] = create(cx, &namespace, rollout, node).await?;
            deleted.extend(old);
        }
        are_listed(cx, &services, &current).await?;
        // The next one begins without them: the last resort of a node would have pods that are about to end.
        let within = Within::from_now(ENDS + cx.limits().pods);
        cx.backends_are_gone(&deleted, within).await?;
    }

    cx.phase("verdict: no connection has failed until the last pod was gone");
    let attempts = any.hold(cx).await?;
    // Those of before were reached by the control, and are deleted first.
    all_were_reached(cx, &services, &attempts, &identities_of(&namespace, 1));
    Ok(())
}

/// The rollouts were seen: each pod of each of them was reached through each Service.
fn all_were_reached(cx: &Context, services: &[Rolled], attempts: &[Attempt], pods: &BTreeSet<String>) {
    for Rolled { axis, .. } in services {
        let of_axis = attempts
            .iter()
            .filter(|attempt| attempt.target.starts_with(&format!("[{axis}] ")));
        let by = of_axis.filter_map(|attempt| match &attempt.outcome {
            Outcome::Answered { answer, .. } => Some(answer.identity.clone()),
            _ => None,
        });
        let reached: BTreeSet<String> = by.collect();
        if let Some(missing) = pods.difference(&reached).next() {
            let why = format!("no rollout was seen to the end: {missing} was never reached");
            cx.axes().inconclusive(axis, why, Vec::new());
        }
    }
}

/// A Service of these pods.
struct Rolled {
    axis: String,
    frontends: Frontends,
    is_local: bool,
}

/// Name of a pod of a rollout, of a node and of its pods, by their numbers.
fn name(rollout: usize, node: usize, pod: usize) -> String {
    format!("r{rollout}-n{node}-{pod}")
}

/// Identities of the pods of all rollouts from this one on; the first pods are of rollout 0.
fn identities_of(namespace: &str, first: usize) -> BTreeSet<String> {
    let nodes = (first..=ROLLOUTS).flat_map(|rollout| (0..NODES).map(move |node| (rollout, node)));
    let all = nodes.flat_map(|(rollout, node)| (0..OF_EACH).map(move |pod| name(rollout, node, pod)));
    all.map(|name| format!("{name}.{namespace}/TCP/{TARGET}"))
        .collect()
}

/// Creates the pods of a rollout on a node.
async fn create(cx: &Context, namespace: &str, rollout: usize, node: usize) -> Result<Vec<Backend>, Halt> {
    let lingers = LINGERS.as_millis().to_string();
    let pod = |pod| {
        let name = name(rollout, node, pod);
        let mut args = serve(&name, namespace, &[TARGET], &[]);
        if let Value::Array(args) = &mut args {
            args.extend([json!("--linger"), json!(lingers)]);
        }
        json!({ "name": name, "namespace": namespace, "node": cx.nodes()[node], "args": args })
    };
    cx.backends(&(0..OF_EACH).map(pod).collect::<Vec<Value>>()).await
}

/// Returns when the EndpointSlices of all Services list exactly these pods as ready.
async fn are_listed(cx: &Context, services: &[Rolled], current: &[Vec<Backend>]) -> Result<(), Halt> {
    for Rolled { frontends, .. } in services {
        let addresses = current
            .iter()
            .flatten()
            .map(|pod| Ok(pod.address(frontends.family)?.to_string()));
        let addresses: BTreeSet<String> = addresses.collect::<Result<_, Halt>>()?;
        let limit = cx.limits().own_watch;
        cx.objects()
            .watch()
            .lists(&frontends.service, &addresses, limit)
            .await?;
    }
    Ok(())
}

/// What pods dial inside, and the client outside at the nodes that have pods.
fn dialled(cx: &Context, services: &[Rolled], current: &[Vec<Backend>]) -> Result<Vantages, Halt> {
    let mut all: Vec<Vantage> = Vec::new();
    let by = |pods: &[&Backend]| identities(pods.iter().copied(), Transport::Tcp, TARGET);
    let every = by(&current.iter().flatten().collect::<Vec<_>>());
    for service in services {
        let (axis, frontends) = (&service.axis, &service.frontends);
        let inside = frontends.at_cluster_ip(axis, Transport::Tcp, PORT, &every);
        let mut at_nodes = frontends.at_nodes(cx, axis, Transport::Tcp, &every)?;
        at_nodes.truncate(NODES);
        for (target, pods) in at_nodes.iter_mut().zip(current).filter(|_| service.is_local) {
            target.permitted = Permitted::Serves(by(&pods.iter().collect::<Vec<_>>()));
        }
        all.push((cx.clients().in_pods(), vec![inside]));
        all.extend(cx.clients().outside().map(|client| (vec![client], at_nodes)));
    }
    Ok(all.into_iter().collect())
}
