//! `release-established-flows`: 10 TCP connections, 10 connected and 10 unconnected UDP sockets talk to V at 10
//! exchanges a second each through release and trigger: 0 resets, 0 changed identities, < 1 % lost replies.
//!
//! The flows are opened before the release and are dealt to the clients in turn, so that each vantage has some. V must
//! serve new probes too; where it does not, the rows on new probes say so, and this one decides nothing.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing::Within,
    target::Target,
    verdict::Halt,
};
use oracle::history::Transport;

use super::holders::{
    Holder, SHARED, Wanted, all_serve, backends, some, target, trigger, undisturbed, witnessed,
};

pub(crate) const CASE: Case = Case {
    id: "release-established-flows",
    area: "A release isolation",
    claims: &["release-established-flows"],
    sentence: "established flows to a Service go on when one whose name is a prefix of its own is emptied",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
    },
    disruptive: false,
    manifest: include_str!("release_established_flows.yaml"),
    longest: Duration::from_secs(420),
    run: |cx| Box::pin(run(cx)),
};

/// Names: C's is a prefix of V's.
const CULPRIT: &str = "t";
const VICTIM: &str = "t-ext";
/// What the flows are.
const FLOWS: [Transport; 3] = [Transport::Tcp, Transport::UdpConnected, Transport::Udp];
/// Flows of each kind to each V.
const EACH: u32 = 10;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: C and V list the same backends");
    let namespace = cx.namespace().await?;
    let mut points = Vec::new();
    for family in cx.families() {
        for shared in SHARED {
            for victim_first in [true, false] {
                points.push((family, shared, victim_first));
            }
        }
    }
    let all = backends(cx, &namespace, points.len()).await?;
    let mut pairs = Vec::new();
    for (at, (family, shared, victim_first)) in points.into_iter().enumerate() {
        let age = if victim_first { "V older" } else { "V younger" };
        let axis = format!("{family}, {shared} shared, {age}");
        let (namespace, shared) = (cx.namespace().await?, some(&all, at, shared));
        let order = if victim_first {
            [VICTIM, CULPRIT]
        } else {
            [CULPRIT, VICTIM]
        };
        let mut made = Vec::new();
        for service in order {
            let wanted = Wanted {
                axis: &axis,
                family,
                namespace: &namespace,
                service,
                slice: service,
                target: target(at),
                backends: &shared,
            };
            made.push(Holder::make(cx, &wanted).await?);
        }
        if victim_first {
            made.reverse();
        }
        pairs.push(made);
    }
    let agents = cx.agents().await?;
    all_serve(cx, pairs.iter().flatten()).await?;

    cx.phase("flows to V are opened");
    let victims = || pairs.iter().map(|made| &made[1]);
    let established: Vec<Target> = victims().flat_map(|victim| victim.serves_by(&FLOWS)).collect();
    let within = Within::from_now(cx.limits().endpoints);
    let flows = cx.flows(cx.clients(), &established, EACH, within).await?;

    cx.phase("release: C is emptied");
    let mut seen = Vec::new();
    for made in &mut pairs {
        made[0].list(cx, &[]).await?;
        seen.push(made[0].refuses());
    }
    witnessed(cx, "C is REFUSE", &seen).await?;
    cx.phase("trigger: V is patched, and its flows go on for T_hold");
    let victims = || pairs.iter().map(|made| &made[1]);
    trigger(cx, "1", victims()).await?;
    cx.hold_flows(flows, cx.limits().hold).await?;

    cx.phase("V serves new probes, too");
    let targets: Vec<Target> = victims().flat_map(Holder::serves).collect();
    let within = Within::from_now(cx.limits().service);
    let settled = cx.settle(cx.clients(), &targets, within).await?;
    cx.require(
        "V does not serve new probes, which other rows of this area judge,",
        settled,
    );
    undisturbed(cx, victims(), agents.as_ref()).await
}
