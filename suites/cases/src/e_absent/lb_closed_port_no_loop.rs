//! `lb-closed-port-no-loop`: packets from outside to a load balancer's address, to a port or by a protocol that its
//! Service does not have, and ICMP echoes, reach no backend, and cross a node's uplink at most once in each direction;
//! none is answered that its hops are used up.
//!
//! The network routes the address to the nodes. A node that has nothing for the packet and sends it by its own routes
//! gives it back to a router that sends it to a node again, until its hops are used up: one packet becomes dozens.
use std::time::Duration;

use cluster::{Capability, Place};
use harness::{
    background,
    capture::{Capture, Sent, send},
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence, host_servers, probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::crossings::{Packet, no_loop, received};

use super::closed_ports::{Staged, stage, uplinks};

pub(crate) const CASE: Case = Case {
    id: "lb-closed-port-no-loop",
    area: super::AREA,
    claims: &["lb-closed-port-no-loop"],
    sentence: "packets from outside that a load balancer address has no port for reach no backend and do not loop",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[
            Capability::Outside,
            Capability::LoadBalancerAddresses,
            Capability::RawSockets,
        ],
        target: &[],
    },
    // As of `clusterip-closed-port`; and packets that loop take the network from others.
    disruptive: true,
    manifest: include_str!("closed_ports.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Packets of each kind that no socket of TCP or UDP sends.
const RAW: u16 = 20;
/// Numbers of protocols: what must have come to a node.
const TCP: u8 = 6;
const UDP: u8 = 17;
const UNKNOWN: u8 = 253;

async fn run(cx: &Context) -> Result<(), Halt> {
    let staged = stage(cx, "LoadBalancer").await?;
    let outside: Vec<Client> = cx.clients().outside().into_iter().collect();
    let served: Vec<Destination> = staged.iter().flat_map(Staged::serves).collect();
    let closed: Vec<Destination> = staged.iter().flat_map(Staged::closed).collect();
    cx.phase("control: the address serves from outside");
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "its own ports serve", &outside, &served, within).await?;

    cx.phase("verdict: what it does not have reaches no backend, for the hold time");
    let mut captures = uplinks(cx, &staged).await?;
    for one in &staged {
        for client in &outside {
            let own = host_servers::address_of(cx, client, one.family()).await?;
            let capture = Capture::start(cx, &Place::Outside, own, &[one.address()]).await?;
            captures.push((format!("{} of {}", client.name, one.family()), capture));
        }
    }
    for one in &staged {
        for what in [Sent::Echo, Sent::UnknownProtocol] {
            for client in &outside {
                send(cx, client, one.address(), what, RAW).await?;
            }
        }
    }
    let within = Within::from_now(cx.limits().service);
    let attempts = background::judge_held(cx, &[(outside, closed)], within).await?;
    probing::record_endings(cx, "closed", &attempts);

    cx.phase("verdict: nothing has crossed an uplink twice in one direction");
    let mut seen: Vec<(String, Vec<Packet>)> = Vec::new();
    for (place, capture) in captures {
        seen.push((place, capture.end(cx).await?));
    }
    for one in &staged {
        let axis = format!("{}, loops", one.family());
        let echo = if one.address().is_ipv4() { 1 } else { 58 };
        for protocol in [TCP, UDP, UNKNOWN, echo] {
            let came: usize = seen
                .iter()
                .map(|(_, packets)| received(packets, one.address(), protocol))
                .sum();
            if came == 0 {
                let why = format!(
                    "no packet of protocol {protocol} to {} came to a node",
                    one.address()
                );
                cx.axes().inconclusive(&axis, why, Vec::new());
            }
        }
        let device = |place: &str| format!("the device of {place}");
        let found = seen
            .iter()
            .filter_map(|(place, packets)| no_loop(packets, &device(place), one.address()));
        cx.axes().judged(&axis, found.collect());
    }
    Ok(())
}
