//! `udp-socket-sticks`: 100 datagrams of one unconnected UDP socket to one frontend, at 10/s, reach one backend, as long as that
//! stays in the set and serves; 20 fresh sockets spread over at least two of three backends. From ps, pr and h to cip, where
//! socket hooks may choose, and from x to np, where packets are all that there is.
//!
//! An endpoint that is added meanwhile serves fresh sockets, which is the witness, and answers none that sent before.
use std::time::Duration;

use harness::{
    case::{Case, Families, Family, Needs, Rights, Tier},
    client::Client,
    context::Context,
    flows::Flows,
    objects::Key,
    pods::{Backend, endpoints, serve},
    probing::{Within, identities},
    target::Target,
    verdict::Halt,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

use crate::a_release::frontends::{node_port, nodes};

pub(crate) const CASE: Case = Case {
    id: "udp-socket-sticks",
    area: "H UDP and flow state",
    claims: &["udp-socket-sticks"],
    sentence: "the datagrams of one unconnected UDP socket reach one backend, while endpoints are added",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
    },
    disruptive: false,
    manifest: include_str!("udp_socket_sticks.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::from_secs(10),
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 80;
const TARGET: u16 = 8080;
/// Sockets of each client that send all the while, to each frontend, and datagrams of each that decide.
const SOCKETS: u32 = 4;
const DATAGRAMS: u32 = 100;
/// Fresh sockets of each client, and the fewest backends that they reach.
const FRESH: usize = 20;
const FEWEST: usize = 2;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with three of four backends");
    let (namespace, nodes) = (cx.namespace().await?, cx.nodes());
    let pod = |(name, node): (&str, &String)| {
        let args = serve(name, &namespace, &[], &[TARGET]);
        json!({ "name": name, "namespace": namespace, "node": node, "args": args })
    };
    let names = ["b1", "b2", "b3", "added"].into_iter();
    let pods: Vec<Value> = names.zip(nodes.iter().cycle()).map(pod).collect();
    let all = cx.backends(&pods).await?;
    let mut dialled = Vec::new();
    for family in cx.families() {
        dialled.extend(stage(cx, &namespace, family, &all[..3]).await?);
    }
    let within = Within::from_now(cx.limits().service);
    cx.fence().await?;
    let any = Permitted::ServesOneOf(identities(&all[..3], Transport::Udp, TARGET));
    for (clients, targets) in &dialled {
        cx.control("it serves", clients, &with(targets, &any), within)
            .await?;
    }
    dialled.retain(|(_, targets)| cx.is_open(&targets[0].axis));

    cx.phase("sockets begin to send, and fresh ones spread");
    let mut flows = Flows::none();
    for (clients, targets) in &dialled {
        let each = SOCKETS * u32::try_from(clients.len()).unwrap_or(1);
        let within = Within::from_now(cx.limits().endpoints);
        flows = flows.and(cx.flows(clients, targets, each, within).await?);
    }
    for (clients, targets) in &dialled {
        cx.judge_spread(clients, targets, FRESH, FEWEST).await?;
    }

    cx.phase("an endpoint is added, and serves fresh sockets");
    for family in cx.families() {
        let slice = Key::slice(&namespace, &service(family));
        let endpoints = json!({ "endpoints": endpoints(&all, family)? });
        cx.objects().patch(&slice, endpoints).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    cx.fence().await?;
    let grown = Permitted::Serves(identities(&all, Transport::Udp, TARGET));
    for (clients, targets) in dialled.iter().filter(|(_, of)| cx.is_open(&of[0].axis)) {
        cx.witness("what was added serves", clients, &with(targets, &grown), within)
            .await?;
    }

    cx.phase("verdict: each socket has one backend, and never what was added");
    let window = cx.limits().hold.max(cx.limits().exchange * DATAGRAMS);
    let attempts = cx.hold_flows(flows, window).await?;
    for (clients, targets) in &dialled {
        cx.judge_sticking(clients, targets, &attempts, SOCKETS, DATAGRAMS);
    }
    Ok(())
}

/// A Service: its cluster IP for all clients inside, and its node ports for the one outside, where there is one.
async fn stage(
    cx: &Context,
    namespace: &str,
    family: Family,
    backends: &[Backend],
) -> Result<Vec<(Vec<Client>, Vec<Target>)>, Halt> {
    let service = service(family);
    let values = json!({
        "namespace": namespace, "service": service, "family": family.to_string(),
        "endpoints": endpoints(backends, family)?,
    });
    let vip = cx.apply_service("${service}", &values).await?;
    let object = cx.objects().get(&Key::service(namespace, &service)).await?;
    let port = node_port(&object, "UDP").ok_or_else(|| Halt::Harness(format!("no node port: {object}")))?;
    let target = |kind: &str, name: &str, address, port| {
        let (axis, address) = (format!("{family}, {kind}"), (address, port).into());
        let expected = identities(backends, Transport::Udp, TARGET);
        Target::serves(&axis, name, Transport::Udp, address, expected)
    };
    let inside = (cx.clients().to_vec(), vec![target("cip", "cip", vip, PORT)]);
    let np = nodes(cx, family).map(|(node, address)| target("np", &node, address, port));
    let outside = cx.outside().map(|client| (vec![client], np.collect()));
    Ok([inside].into_iter().chain(outside).collect())
}

fn service(family: Family) -> String {
    format!("sticky-{family}").to_lowercase()
}

fn with(targets: &[Target], permitted: &Permitted) -> Vec<Target> {
    let with = |target: &Target| Target {
        permitted: permitted.clone(),
        ..target.clone()
    };
    targets.iter().map(with).collect()
}
