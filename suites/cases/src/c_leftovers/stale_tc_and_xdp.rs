//! `stale-tc-and-xdp`: the devices of a node have filters of an earlier start, with another priority, or TCX links
//! without pins (`stale-tc`), or an XDP program (`stale-xdp`). Node port and ClusterIP are served by current backends,
//! from pods of other nodes and from outside, and each packet is translated once.
//!
//! Generation 1's packet programs are held by id, at every device; it is killed and its pins are removed. They are
//! attached again as filters, or by links without pins. The XDP program is one of this suite, at the uplink: it uses
//! the maps of generation 1, and sends datagrams for the node port to `b_old`. `b_old` is on another node, leaves the
//! EndpointSlice and stays alive: it is the trap. Before generation 2 starts, a client outside reaches the trap through
//! the leftover, as no other program translates. Where an agent puts its programs first, the leftover sees translated
//! addresses: so another Service is deleted meanwhile, whose frontends must reach no backend. Backends also listen on
//! the Service's port: packets that are translated twice, or not at all, would arrive there.
use std::time::Duration;

use cluster::{Capability, Stop};
use faults::{Again, LeftoverPackets, StoppedAgent};
use futures::future::try_join_all;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence, probing,
    recovery::{Recovering, Started},
    target_needs::OfTarget,
    verdict::Halt,
    waiting::{Within, eventually},
};
use oracle::{
    history::{Attempt, Transport},
    trap::trap_untouched,
};

use super::node_ports::NodePorts;

pub(crate) const TC: Case = Case {
    id: "stale-tc",
    area: super::AREA,
    claims: &["stale-tc-and-xdp"],
    sentence: "packet filters of an earlier start translate nothing twice, and nothing to a former backend",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside, Capability::AgentPins],
        target: &[OfTarget::PacketPrograms],
    },
    disruptive: true,
    manifest: include_str!("node_ports.yaml"),
    longest: Duration::from_secs(1200),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(tc(cx)),
};

pub(crate) const XDP: Case = Case {
    id: "stale-xdp",
    sentence: "an XDP program of an earlier start translates nothing twice, and nothing to a former backend",
    run: |cx| Box::pin(xdp(cx)),
    ..TC
};

/// The leftover.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Filters,
    Links,
    Xdp,
}

async fn tc(cx: &Context) -> Result<(), Halt> {
    let mut axes = vec![("filters", Left::Filters)];
    match lacks_links(cx).await? {
        None => axes.push(("links of TCX", Left::Links)),
        Some(why) => cx.axes().not_enabled("links of TCX", &why),
    }
    for (axis, left) in cx.axes().choose(axes, |(axis, _)| (*axis).to_owned()) {
        leftover(cx, axis, left).await?;
    }
    Ok(())
}

async fn xdp(cx: &Context) -> Result<(), Halt> {
    leftover(cx, "XDP", Left::Xdp).await
}

/// Checked before the axis is staged: an axis that has begun needs a verdict.
async fn lacks_links(cx: &Context) -> Result<Option<String>, Halt> {
    let expires = cx.limits().longest(TC.longest);
    let mut packets = LeftoverPackets::hold(cx.cluster(), &cx.nodes()[0], expires).await?;
    let why = packets.lacks_links().await?;
    packets.heal().await?;
    Ok(why)
}

async fn leftover(cx: &Context, axis: &str, left: Left) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    let outside = cx
        .clients()
        .outside()
        .ok_or_else(|| Halt::Harness("no client outside".to_owned()))?;
    cx.phase(&format!("{axis}: generation 1, the old backend serves"));
    let mut services = Vec::new();
    for family in cx.families() {
        services.push(NodePorts::stage(cx, axis, family, node).await?);
    }
    fence::pass(cx).await?;
    let all = |of: fn(&NodePorts) -> Vec<Destination>| services.iter().flat_map(of).collect::<Vec<_>>();
    // Node ports are dialled from inside at the very end: one client that dials both at once may reach one backend from
    // one source port through two frontends.
    let vantages = |cluster_ips, ports| {
        [
            (cx.clients().to_vec(), all(cluster_ips)),
            (vec![outside.clone()], all(ports)),
        ]
    };
    let within = Within::from_now(cx.limits().service);
    let before = vantages(NodePorts::old_cluster_ips, NodePorts::old_ports);
    let controls = before.iter().map(|(clients, targets)| {
        probing::control(
            cx,
            "generation 1 serves the old backend",
            clients,
            targets,
            within,
        )
    });
    try_join_all(controls).await?;

    cx.phase(&format!(
        "{axis}: generation 1 is killed, its packet programs stay"
    ));
    let mut recovery = Recovering::begin(cx, node).await?;
    let expires = cx.limits().longest(TC.longest);
    let mut packets = LeftoverPackets::hold(cx.cluster(), node, expires).await?;
    if packets.held().is_empty() {
        return Err(Halt::Inconclusive(
            "no program is attached to a device of the node any more".to_owned(),
        ));
    }
    cx.fault(&format!("held on {node}: {:?}", packets.held()));
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    agent.lose_pins().await?;
    let again = match left {
        Left::Filters => Again::Filters,
        Left::Links => Again::Links,
        Left::Xdp => Again::Xdp {
            device_of: services[0].node,
            pairs: services
                .iter()
                .map(NodePorts::misleading)
                .collect::<Result<_, _>>()?,
        },
    };
    let attached = packets.attach(again).await?;
    cx.fault(&format!(
        "agent of {node} killed, its pins lost; attached again: {attached:?}"
    ));
    for service in &services {
        service.replace(cx).await?;
    }

    cx.phase(&format!("{axis}: witness, the leftover sends to the old backend"));
    cx.fault(&format!(
        "at devices before generation 2: {:?}",
        packets.list().await?
    ));
    witness(cx, left, &outside, &services).await?;

    cx.phase(&format!("{axis}: generation 2 starts"));
    let ((), Started { healing, .. }) = recovery.start(cx, agent.start()).await?;
    cx.phase(&format!(
        "{axis}: verdict, the current backends serve, the trap gets nothing"
    ));
    let vantages = vantages(NodePorts::cluster_ips_now, NodePorts::ports_now);
    let judged = vantages
        .iter()
        .map(|(clients, targets)| probing::judge(cx, clients, targets, healing));
    let mut attempts = try_join_all(judged).await?.concat();
    let list = packets.list().await?;
    cx.fault(&format!("at devices after generation 2: {list:?}"));
    fence::pass(cx).await?;
    let mut windows = Vec::new();
    for (clients, targets) in &vantages {
        windows.push(Background::steadily(cx, clients, targets, cx.limits().hold).await?);
    }
    for held in try_join_all(windows.into_iter().map(|window| window.hold(cx))).await? {
        attempts.extend(held);
    }
    attempts.extend(probing::judge(cx, cx.clients(), &all(NodePorts::ports_now), healing).await?);
    for service in &services {
        for trap in &service.old {
            probing::trap_untouched(cx, &service.axis, &attempts, trap).await?;
        }
    }
    let axes: Vec<&str> = services.iter().map(|service| service.axis.as_str()).collect();
    recovery.end(cx, &axes).await?;

    cx.phase(&format!("{axis}: heal"));
    let detached = packets.heal().await?;
    cx.fault(&format!("healed: {detached:?} detached"));
    cx.record(
        &format!("leftover programs that were still attached at the end ({axis})"),
        format!("{detached:?}"),
    );
    for (clients, targets) in &vantages {
        probing::judge_briefly(cx, clients, targets, Within::from_now(cx.limits().heal)).await?;
    }
    Ok(())
}

/// From outside each node port reaches the trap. Nothing translates the answers to XDP's datagrams: the trap's log
/// decides.
async fn witness(cx: &Context, left: Left, outside: &Client, services: &[NodePorts]) -> Result<(), Halt> {
    let within = Within::from_now(cx.limits().endpoints);
    let clients = std::slice::from_ref(outside);
    if left != Left::Xdp {
        let trapped: Vec<Destination> = services.iter().flat_map(NodePorts::old_ports).collect();
        return probing::witness(cx, "the node port reaches the trap", clients, &trapped, within).await;
    }
    for service in services {
        let mut misled = service.old_ports();
        misled.retain(|target| target.transport == Transport::Udp && target.address == service.misled);
        let reached = eventually("the node port reaches the trap", within, async || {
            let attempts: Vec<Attempt> = probing::probe_briefly(cx, outside, &misled).await?;
            for trap in &service.old {
                let log = cx.logs().of(trap).await?;
                if trap_untouched(&attempts, &trap.server(), &log).is_some() {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        });
        match reached.await {
            Err(Halt::Inconclusive(why)) => {
                cx.axes()
                    .inconclusive(&service.axis, format!("not witnessed: {why}"), Vec::new());
            }
            other => other?,
        }
    }
    Ok(())
}
