//! `pmtu-toward-client`: a backend sends 1 MiB to a client outside, through a node port, its backend on that node or on
//! another one, past a hop of 1,280 bytes near the client. `pmtu-toward-client-lb`: through a load balancer that has one
//! node. It arrives within 10 s: the hop's ICMP error, about a packet from the frontend, reaches the backend as one about
//! its own.
//!
//! Each axis has a backend of its own, which knows no path to the client yet. Errors that arrive at a node that has not
//! forwarded the flow are not tried.
use std::time::Duration;

use cluster::{Capability, Family, LONGEST};
use harness::{
    api_faults::narrow_hop,
    capture::Capture,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    commands::change,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, node_addresses},
    pods::endpoints,
    probing::{self, identities},
    transfers::{self, Direction, FORGET_PATHS, met_hop, on},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "pmtu-toward-client",
    area: super::AREA,
    claims: &["pmtu-toward-client"],
    sentence: "a backend learns that its packets are too big for a hop toward a client outside",
    tier: Tier::Core,
    features: &["icmp-errors"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside, Capability::RawSockets, Capability::NarrowHop],
        target: &[],
    },
    // It gives the client outside other addresses.
    disruptive: true,
    manifest: include_str!("pmtu.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, &[("np-near", 0), ("np-far", 1)], "NodePort")),
};
pub(crate) const LB: Case = Case {
    id: "pmtu-toward-client-lb",
    sentence: "a backend learns that its packets through a load balancer are too big for a hop toward a client outside",
    features: &["icmp-errors", "loadbalancer"],
    needs: Needs {
        also: &[
            Capability::Outside,
            Capability::RawSockets,
            Capability::NarrowHop,
            Capability::LoadBalancerAddresses,
        ],
        ..CASE.needs
    },
    // Local: the load balancer has no other node.
    run: |cx| Box::pin(run(cx, &[("lb", 0)], "LoadBalancer")),
    ..CASE
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;

async fn run(cx: &Context, services: &[(&str, usize)], kind: &str) -> Result<(), Halt> {
    cx.phase("staging: Services, each of a backend of its own");
    let namespace = cx.namespace().await?;
    let nodes = cx.nodes();
    let x: Client = cx
        .clients()
        .outside()
        .ok_or_else(|| Halt::Harness("there is no client outside".to_owned()))?;
    let policy = if kind == "LoadBalancer" {
        "Local"
    } else {
        "Cluster"
    };
    let mut staged: Vec<(Family, Destination)> = Vec::new();
    let services = cx
        .axes()
        .choose(services.to_vec(), |(name, _)| (*name).to_owned());
    for (name, node) in services {
        let placed = [(name, nodes[node].as_str())];
        let backends = frontends::serving_on(cx, &namespace, &placed, &[TARGET], &[]).await?;
        let by = identities(&backends, Transport::Tcp, TARGET);
        for family in cx.families() {
            let service = format!("{name}-{family}").to_lowercase();
            let endpoints = endpoints(&backends, family)?;
            let values = json!({
                "namespace": namespace, "service": service, "endpoints": endpoints,
                "type": kind, "policy": policy,
            });
            let made = Frontends::create(cx, family, values).await?;
            let axis = format!("{family}, {name}");
            let at = match kind {
                "LoadBalancer" => made.at_balancers(cx, &axis, Transport::Tcp, PORT, &by).await?,
                _ => made.at_nodes(cx, &axis, Transport::Tcp, &by)?,
            };
            // The first node's own port.
            staged.extend(at.into_iter().take(1).map(|target| (family, target)));
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let all: Vec<Destination> = staged.iter().map(|(_, target)| target.clone()).collect();
    let clients = [x.clone()];
    probing::control(cx, "they serve", &clients, &all, within).await?;

    cx.phase("verdict: past a narrow hop all arrives");
    let (hop, addresses) = narrow_hop(cx, LONGEST).await?;
    for (family, target) in &staged {
        if !cx.axes().is_open(&target.axis) {
            continue;
        }
        let from = addresses.iter().copied().find(|address| family.has(address));
        let from = from.ok_or_else(|| Halt::Harness(format!("the hop has no {family}")))?;
        let mut captures = Vec::new();
        for (node, device) in node_addresses(cx, *family) {
            change(cx, &on(&node), FORGET_PATHS).await?;
            captures.push(Capture::start(cx, &on(&node), device, &[from]).await?);
        }
        let attempt = transfers::transfer(cx, &x, Some(from), target, Direction::Download).await?;
        let mut packets = Vec::new();
        for capture in captures {
            packets.extend(capture.end(cx).await?);
        }
        met_hop(cx, &target.axis, from, &packets);
        if cx.axes().is_open(&target.axis) {
            transfers::judge(cx, &x, target, &[attempt]).await?;
        }
    }
    hop.heal().await?;
    Ok(())
}
