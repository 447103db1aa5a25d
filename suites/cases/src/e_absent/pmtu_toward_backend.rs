//! `pmtu-toward-backend`: a client sends 1 MiB through the ClusterIP to a backend whose own node has a route to it of
//! 1,280 bytes. It arrives within 10 s: the node's ICMP error, about a packet to the backend, reaches the client as one
//! about a packet to the ClusterIP.
//!
//! A socket that was translated to the backend learns by itself. A target that can do without translation at sockets is
//! tried that way, too. What a client's device shows is recorded.
use std::time::Duration;

use cluster::{Capability, Family, Stop, Variant};
use faults::StoppedAgent;
use harness::{
    agents,
    capture::Capture,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    commands::{Lasting, change},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, node_addresses},
    host_servers::address_of,
    pods::{Backend, endpoints},
    probing::{self, identities},
    transfers::{self, Direction, FORGET_PATHS, met_hop, narrow_route, on},
    verdict::Halt,
    waiting::Within,
};
use oracle::{
    crossings::{sent_to, too_big_to},
    history::Transport,
};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "pmtu-toward-backend",
    area: super::AREA,
    claims: &["pmtu-toward-backend"],
    sentence: "a client learns through the translation that its packets are too big for a hop toward the backend",
    tier: Tier::Core,
    features: &["icmp-errors"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::RawSockets, Capability::NarrowHop],
        target: &[],
    },
    // It changes a route of a node, and may start an agent otherwise.
    disruptive: true,
    manifest: include_str!("pmtu.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;

/// A Service in one axis. Each has a ClusterIP that no client knows a path to.
struct Staged {
    family: Family,
    target: Destination,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services of a backend on another node");
    let namespace = cx.namespace().await?;
    let [near, far]: [String; 2] = cx.nodes()[..2].to_vec().try_into().unwrap_or_default();
    let backends = frontends::serving_on(cx, &namespace, &[("b", &far)], &[TARGET], &[]).await?;
    let as_it_is = stage(cx, &namespace, "", &backends).await?;
    let variant = Variant::SocketLbOff;
    let has_variant = cx.cluster().describe().variants.contains(&variant);
    let by_packets = match has_variant {
        true => stage(cx, &namespace, "sockets off", &backends).await?,
        false => Vec::new(),
    };
    let clients = cx.clients().on(&near);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let all: Vec<Destination> = as_it_is
        .iter()
        .chain(&by_packets)
        .map(|one| one.target.clone())
        .collect();
    probing::control(cx, "they serve", &clients, &all, within).await?;

    cx.phase("verdict: past a narrow hop all arrives");
    past_hop(cx, &as_it_is, &clients, [&near, &far], &backends[0]).await?;
    if by_packets.is_empty() {
        return Ok(());
    }

    cx.phase("verdict: and so it does without translation at sockets");
    let before = cx.cluster().agents()?.state(&near).await?;
    let stopped = StoppedAgent::stop(cx.faults(), &near, Stop::Kill).await?;
    let reconfigured = stopped.start_as(variant).await?;
    cx.fault(&format!("agent of {near} killed, and started as {variant}"));
    agents::ready(cx, &near, &before, Within::from_now(cx.limits().heal)).await?;
    let all: Vec<Destination> = by_packets.iter().map(|one| one.target.clone()).collect();
    let within = Within::from_now(cx.limits().heal);
    probing::control(cx, "packets are translated", &clients, &all, within).await?;
    past_hop(cx, &by_packets, &clients, [&near, &far], &backends[0]).await?;
    Ok(reconfigured.heal().await?)
}

async fn stage(cx: &Context, namespace: &str, way: &str, backends: &[Backend]) -> Result<Vec<Staged>, Halt> {
    let by = identities(backends, Transport::Tcp, TARGET);
    let mut staged = Vec::new();
    for family in cx.families() {
        let suffix = if way.is_empty() { "" } else { "-by-packets" };
        let service = format!("far{suffix}-{family}").to_lowercase();
        let endpoints = endpoints(backends, family)?;
        let values = json!({
            "namespace": namespace, "service": service, "endpoints": endpoints,
            "type": "NodePort", "policy": "Cluster",
        });
        let made = Frontends::create(cx, family, values).await?;
        let axis = [family.to_string(), way.to_owned()].join(", ");
        let target = made.at_cluster_ip(axis.trim_end_matches(", "), Transport::Tcp, PORT, &by);
        staged.push(Staged { family, target });
    }
    Ok(staged)
}

/// Verdict: a transfer of each client to each of these arrives, while the backend's node has a narrow route to it.
async fn past_hop(
    cx: &Context,
    staged: &[Staged],
    clients: &[Client],
    [near, far]: [&String; 2],
    backend: &Backend,
) -> Result<(), Halt> {
    for Staged { family, target } in staged {
        let address = backend.address(*family)?;
        let [begin, end] = narrow_route(address);
        let longest = cx.limits().longest(cx.limits().heal);
        let hop = Lasting::begin(cx, &on(far), [&begin, &end], longest).await?;
        let mut nodes = node_addresses(cx, *family).into_iter();
        let (_, device) = nodes
            .find(|(node, _)| node == far)
            .ok_or_else(|| Halt::Harness(format!("{far} has no {family} address")))?;
        for client in clients {
            if !cx.axes().is_open(&target.axis) {
                break;
            }
            for place in [&on(near), &client.place] {
                change(cx, place, FORGET_PATHS).await?;
            }
            let own = address_of(cx, client, *family).await?;
            let frontend = target.address.ip();
            let at_hop = Capture::start(cx, &on(far), device, &[address]).await?;
            let at_client = Capture::start(cx, &client.place, own, &[frontend, address]).await?;
            let attempt = transfers::transfer(cx, client, None, target, Direction::Upload).await?;
            let (at_hop, at_client) = (at_hop.end(cx).await?, at_client.end(cx).await?);
            met_hop(cx, &target.axis, address, &at_hop);
            let seen = [frontend, address].map(|to| {
                let (sent, errors) = (sent_to(&at_client, to), too_big_to(&at_client, to));
                format!("{sent} packets to {to}, {errors} errors about them")
            });
            let what = format!("{} of {}", target.axis, client.name);
            cx.record(&format!("{what}, on the client's device"), seen.join("; "));
            if cx.axes().is_open(&target.axis) {
                transfers::judge(cx, client, target, &[attempt]).await?;
            }
        }
        hop.end(cx).await?;
    }
    Ok(())
}
