//! `clusterip-closed-port`: a port that a Service does not have, and a protocol that it does not have at a port, reach
//! no backend through its ClusterIP, from pods and hosts of every node.
//!
//! The backend listens there, by both protocols, and at its target ports, too. Whether a packet to the ClusterIP leaves
//! a node, and whether an ICMP echo to it is answered, is recorded.
use std::time::Duration;

use cluster::Capability;
use harness::{
    background,
    capture::echoes,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence, probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::crossings::sent_to;

use super::closed_ports::{Staged, stage, uplinks};

pub(crate) const CASE: Case = Case {
    id: "clusterip-closed-port",
    area: super::AREA,
    claims: &["clusterip-closed-port"],
    sentence: "ports and protocols that a Service does not have reach no backend through its ClusterIP",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[],
    },
    // Nothing is done to a node but that packets of its uplink are seen; cases that need rights on nodes run alone.
    disruptive: true,
    manifest: include_str!("closed_ports.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Echo requests of each client.
const ECHOES: u16 = 3;

async fn run(cx: &Context) -> Result<(), Halt> {
    let staged = stage(cx, "ClusterIP").await?;
    let served: Vec<Destination> = staged.iter().flat_map(Staged::serves).collect();
    let closed: Vec<Destination> = staged.iter().flat_map(Staged::closed).collect();
    cx.phase("control: its own ports serve");
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "its own ports serve", cx.clients(), &served, within).await?;

    cx.phase("verdict: the others reach no backend, for the hold time");
    let captures = uplinks(cx, &staged).await?;
    let within = Within::from_now(cx.limits().service);
    let dialled = (cx.clients().to_vec(), closed);
    let attempts = background::judge_held(cx, &[dialled], within).await?;
    probing::record_endings(cx, "closed", &attempts);
    if cx
        .cluster()
        .describe()
        .capabilities
        .contains(&Capability::RawSockets)
    {
        for one in &staged {
            for client in cx.clients().in_pods() {
                let answered = echoes(cx, &client, one.family(), one.address(), ECHOES).await?;
                let what = format!("{}: ICMP echoes from {} answered", one.family(), client.name);
                cx.record(&what, format!("{answered} of {ECHOES}"));
            }
        }
    }
    for (node, capture) in captures {
        let packets = capture.end(cx).await?;
        for one in &staged {
            let what = format!("{}: packets to the ClusterIP that left {node}", one.family());
            cx.record(&what, sent_to(&packets, one.address()).to_string());
        }
    }
    Ok(())
}
