//! `node-addresses-followed`: an address that a node gets on its first device serves node ports within the Service
//! propagation limit, and no longer once the node has lost it. So does an address on a second device, a veth to another
//! network, as a container with two networks has: added while the agent runs, and, in the second run, before it starts.
//! The client outside is in both networks, and reaches backends on all nodes through each.
use std::{net::IpAddr, time::Duration};

use cluster::{Capability, Family, Place, Stop};
use faults::StoppedAgent;
use harness::{
    agents, background,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    commands,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, permitting},
    pods::endpoints,
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "node-addresses-followed",
    area: super::AREA,
    claims: &["node-addresses-followed"],
    sentence: "node ports serve at addresses that a node gets at runtime, on a second device too, and not at those that it loses",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside, Capability::SecondNetwork],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("node_addresses_followed.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TARGET: u16 = 8080;
/// Ranges for documentation, which no cluster has (RFC 5737, RFC 3849): for the first device, and for the second and
/// the client's.
const FIRST: [&str; 2] = ["198.51.100.7", "2001:db8:51::7"];
const SECOND: [[&str; 2]; 2] = [
    ["203.0.113.1/24", "203.0.113.2/24"],
    ["2001:db8:77::1/64", "2001:db8:77::2/64"],
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with a node port, and backends on two nodes");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let node = &cx.nodes()[0];
    let host = Place::Host { node: node.clone() };
    let outside: Vec<Client> = cx.clients().outside().into_iter().collect();
    let (mut usual, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
    for family in cx.families() {
        let service = format!("followed-{family}").to_lowercase();
        let endpoints = endpoints(&backends, family)?;
        let values = json!({ "namespace": namespace, "service": service, "endpoints": endpoints });
        let made = Frontends::create(cx, family, values).await?;
        for transport in [Transport::Tcp, Transport::Udp] {
            let by = identities(&backends, transport, TARGET);
            let port = made.node_port(transport)?;
            let at = |axis: &str, address: &str| -> Result<Destination, Halt> {
                let address: IpAddr = address
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .parse()
                    .map_err(|_| Halt::Harness(format!("{address} is no address")))?;
                Ok(made.at(
                    &format!("{family}, {axis}"),
                    node,
                    transport,
                    (address, port).into(),
                    &by,
                ))
            };
            usual.extend(made.at_nodes(cx, &format!("{family}, first device"), transport, &by)?);
            first.push(at("first device", FIRST[of(family)])?);
            for when in ["while the agent runs", "before the agent starts"] {
                second.push((
                    when,
                    at(&format!("second device, added {when}"), SECOND[of(family)][0])?,
                ));
            }
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "node ports serve", &outside, &usual, within).await?;

    cx.phase("the node gets an address on its first device, and a second device");
    let network = commands::Waiting::start(cx, &Place::Outside).await?;
    for family in cx.families() {
        first_device(cx, &host, family, true).await?;
    }
    second_device(cx, &host, network.pid).await?;
    let within = Within::from_now(cx.limits().service);
    let added = |when: &str| -> Vec<Destination> {
        second
            .iter()
            .filter(|(other, _)| *other == when)
            .map(|(_, target)| target.clone())
            .collect()
    };
    probing::judge(
        cx,
        &outside,
        &[first.clone(), added("while the agent runs")].concat(),
        within,
    )
    .await?;

    cx.phase("the node loses the address, and node ports end there");
    for family in cx.families() {
        first_device(cx, &host, family, false).await?;
    }
    let within = Within::from_now(cx.limits().service);
    let lost = permitting(&first, &Permitted::None);
    probing::judge(cx, &outside, &lost, within).await?;
    background::hold_steadily(cx, &outside, &lost, cx.limits().hold).await?;

    cx.phase("the second device is created again while the agent is stopped");
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
    commands::change(cx, &host, "ip link del plumbline0").await?;
    second_device(cx, &host, network.pid).await?;
    let started = Within::from_now(cx.limits().heal);
    agent.start().await?;
    agents::ready(cx, node, &before, started).await?;
    let within = Within::from_now(cx.limits().heal);
    probing::judge(cx, &outside, &added("before the agent starts"), within).await?;
    commands::change(cx, &host, "ip link del plumbline0").await
}

fn of(family: Family) -> usize {
    usize::from(family == Family::IPv6)
}

/// Adds the address to the device that has the node's InternalIP, for as long as the case lasts, or removes it.
async fn first_device(cx: &Context, host: &Place, family: Family, gives: bool) -> Result<(), Halt> {
    let (address, nodes) = (FIRST[of(family)], frontends::node_addresses(cx, family));
    let internal = nodes[0].1;
    let device = format!("$(ip -o addr show to {internal} | awk '{{print $2; exit}}')");
    let (length, flag) = if family == Family::IPv6 {
        (128, "nodad")
    } else {
        (32, "")
    };
    if !gives {
        return commands::change(cx, host, &format!("ip addr del {address}/{length} dev {device}")).await;
    }
    let lasts = "valid_lft 900 preferred_lft 900";
    commands::change(
        cx,
        host,
        &format!("ip addr add {address}/{length} dev {device} {flag} {lasts}"),
    )
    .await?;
    commands::change(
        cx,
        &Place::Outside,
        &format!("ip route replace {address} via {internal}"),
    )
    .await
}

/// A veth of the node whose other end is in the client's network namespace.
async fn second_device(cx: &Context, host: &Place, pid: u32) -> Result<(), Halt> {
    let add = |end: usize| -> String {
        let each = cx.families().into_iter().map(|family| {
            let flag = if family == Family::IPv6 { "nodad" } else { "" };
            format!(
                "ip addr add {} dev plumbline{end} {flag}; ",
                SECOND[of(family)][end]
            )
        });
        each.collect::<String>() + &format!("ip link set plumbline{end} up")
    };
    commands::change(
        cx,
        host,
        &format!(
            "ip link add plumbline0 type veth peer name plumbline1 netns {pid}; {}",
            add(0)
        ),
    )
    .await?;
    commands::change(cx, &Place::Outside, &add(1)).await
}
