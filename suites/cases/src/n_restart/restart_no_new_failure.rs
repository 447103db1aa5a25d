//! `restart-no-new-failure`: while the agent of a node is killed and starts again, five times, no new connection
//! through it fails: to ClusterIP, node port and load balancer address, from its pods, its host and outside, 100 in a
//! second of each client, until the hold time after the last start.
//!
//! The Service has an EndpointSlice for each backend and, where the cluster has both families, both; a hundred others
//! are there, too. An agent that begins with empty tables, or with those of the first EndpointSlice, is seen within
//! milliseconds. The claim's 5 min hold for the long profile; other profiles scale them as they do the hold time.
use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use cluster::{Capability, Family};
use futures::{
    future::try_join_all,
    stream::{self, StreamExt as _, TryStreamExt as _},
};
use harness::{
    agents::Killed,
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontend_kinds::{Kind, offered},
    frontends::{self, Vantage, balancers, node_port},
    names::Key,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::{Within, eventually, has_lasted},
};
use oracle::history::{Attempt, Transport};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "restart-no-new-failure",
    area: super::AREA,
    claims: &["restart-no-new-failure"],
    sentence: "no new connection through a node fails while its agent is killed and starts again, five times",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("restart_no_new_failure.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::from_secs(30),
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const RESTARTS: usize = 5;
const OTHERS: usize = 100;
/// Writes at once, of the others.
const AT_ONCE: usize = 8;
/// From one connection of a client to the next.
const EVERY: Duration = Duration::from_millis(10);
/// From one start to the next kill: the agent has done what it does after its start, such as removing what it does not
/// know.
const BETWEEN: Duration = Duration::from_secs(4);
/// A kernel sends a SYN again after so long (RFC 6298, 2.1).
const AGAIN: Duration = Duration::from_secs(1);

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service of several EndpointSlices, and a hundred others");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[]).await?;
    let kinds = offered(cx, &[Kind::ClusterIp, Kind::NodePort, Kind::Balancer]);
    let is_balanced = kinds.contains(&Kind::Balancer);
    let object = create(cx, &namespace, "lasting-service", is_balanced, &backends).await?;
    let others = (0..OTHERS).map(|number| {
        let (namespace, backends) = (&namespace, &backends);
        async move { create(cx, namespace, &format!("beside-{number:03}"), false, backends).await }
    });
    let _: Vec<Value> = stream::iter(others)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let node = &cx.nodes()[0];
    let dialled = dialled(cx, node, &object, is_balanced, &backends);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in &dialled {
        probing::control(cx, "every frontend serves", clients, targets, within).await?;
    }

    cx.phase("fault: the agent is killed and starts again, under load");
    let mut windows = Vec::new();
    for (clients, targets) in &dialled {
        windows.push(Background::every(cx, clients, targets, EVERY, cx.limits().hold).await?);
    }
    for _ in 0..RESTARTS {
        Killed::kill(cx, std::slice::from_ref(node))
            .await?
            .start(cx)
            .await?;
        has_lasted(Instant::now(), BETWEEN).await;
    }
    cx.phase("verdict: no connection has failed, until the hold time is over");
    let held: Vec<Attempt> = try_join_all(windows.into_iter().map(|window| window.hold(cx)))
        .await?
        .concat();
    let took = |attempt: &Attempt| Duration::from_micros(attempt.end_us.saturating_sub(attempt.start_us));
    let again = held.iter().filter(|attempt| took(attempt) >= AGAIN).count();
    let what = "connections that took a second SYN, or as long";
    cx.record(what, format!("{again} of {}", held.len()));
    Ok(())
}

/// A Service of all families with an EndpointSlice for each family and backend. Returns it with all of its addresses.
async fn create(
    cx: &Context,
    namespace: &str,
    service: &str,
    is_balanced: bool,
    backends: &[Backend],
) -> Result<Value, Halt> {
    let families = cx.families();
    let values = json!({
        "service": service, "namespace": namespace, "families": families.iter().map(Family::to_string).collect::<Vec<_>>(),
        "policy": if families.len() > 1 { "RequireDualStack" } else { "SingleStack" },
        "type": if is_balanced { "LoadBalancer" } else { "NodePort" },
    });
    cx.apply_service("${service}", &values).await?;
    for family in &families {
        for (number, backend) in backends.iter().enumerate() {
            let slice = format!("{service}-{family}-{number}").to_lowercase();
            let values = json!({
                "service": service, "namespace": namespace, "slice": slice, "family": family.to_string(),
                "endpoints": endpoints([backend], *family)?,
            });
            cx.apply("${slice}", &values).await?;
        }
    }
    let key = Key::service(namespace, service);
    let within = Within::from_now(cx.limits().service);
    eventually("the Service has all its frontends", within, async || {
        let object = cx.objects().get(&key).await?;
        let mut each = families.iter();
        let is_whole = !is_balanced || each.all(|family| !balancers(&object, *family).is_empty());
        Ok(is_whole.then_some(object))
    })
    .await
}

/// Clients of a node with the ClusterIPs, and the client outside with the node's own node ports and the load balancers.
fn dialled(
    cx: &Context,
    node: &str,
    object: &Value,
    is_balanced: bool,
    backends: &[Backend],
) -> Vec<Vantage> {
    let by = identities(backends, Transport::Tcp, TARGET);
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let to = |kind: Kind, address: IpAddr, port: u16| {
            let axis = format!("{family}, {kind}");
            Destination::serves(
                &axis,
                &kind.to_string(),
                Transport::Tcp,
                (address, port).into(),
                by.clone(),
            )
        };
        let listed = object["spec"]["clusterIPs"].as_array().into_iter().flatten();
        let mut addresses = listed.filter_map(|address| address.as_str()?.parse().ok());
        let address = addresses.find(|address| family.has(address));
        inside.extend(address.map(|address| to(Kind::ClusterIp, address, PORT)));
        let own = frontends::node_addresses(cx, family)
            .into_iter()
            .find(|(name, _)| name == node);
        let port = node_port(object, "TCP").unwrap_or_default();
        outside.extend(own.map(|(_, address)| to(Kind::NodePort, address, port)));
        if is_balanced {
            let addresses = balancers(object, family).into_iter();
            outside.extend(addresses.map(|address| to(Kind::Balancer, address, PORT)));
        }
    }
    let beyond = cx.clients().outside().map(|client| (vec![client], outside));
    [(cx.clients().on(node), inside)]
        .into_iter()
        .chain(beyond)
        .collect()
}
