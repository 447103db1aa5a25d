//! `release-established-flows`: 10 TCP connections, 10 connected and 10 unconnected UDP sockets exchange 10 requests a
//! second each with the victim, through release and trigger: no reset, no other backend, less than 1 % lost replies.
//!
//! The flows are opened before the release and shared among the clients in turn. The victim must serve new probes too;
//! where it does not, other claims fail, and this one is not decided.
use std::time::Duration;

use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    flows::Flows,
    probing,
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};
use oracle::history::Transport;

use super::{
    holders::{all_serve, trigger, undisturbed, witnessed},
    pairs::{Pair, pairs, victims},
};

pub(crate) const CASE: Case = Case {
    id: "release-established-flows",
    area: super::AREA,
    claims: &["release-established-flows"],
    sentence: "established flows to a Service go on when one whose name is a prefix of its own is emptied",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    // A thousand exchanges a second: cases beside it would run late, and so would this one.
    disruptive: true,
    manifest: include_str!("release_established_flows.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Transports of the flows.
const FLOWS: [Transport; 3] = [Transport::Tcp, Transport::UdpConnected, Transport::Udp];
/// Flows of each transport to each victim.
const EACH: u32 = 10;

async fn run(cx: &Context) -> Result<(), Halt> {
    let mut pairs = pairs(cx, &[((), "")]).await?;
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;

    cx.phase("flows to the victim are opened");
    let established: Vec<Destination> = victims(&pairs)
        .into_iter()
        .flat_map(|victim| victim.serves_by(&FLOWS))
        .collect();
    let within = Within::from_now(cx.limits().endpoints);
    let flows = Flows::open(cx, cx.clients(), &established, EACH, within).await?;

    cx.phase("release: the culprit is emptied");
    let mut seen = Vec::new();
    for pair in &mut pairs {
        pair.culprit.list(cx, &[]).await?;
        seen.push(pair.culprit.refuses());
    }
    witnessed(cx, (Effect::Emptied, "the culprit refuses"), &seen).await?;
    cx.phase("trigger: the victim is patched, and its flows go on for the hold time");
    let victims = victims(&pairs);
    trigger(cx, "1", victims.iter().copied()).await?;
    flows.hold(cx, cx.limits().hold).await?;

    cx.phase("the victim serves new probes, too");
    let targets: Vec<Destination> = victims.iter().flat_map(|victim| victim.serves()).collect();
    let within = Within::from_now(cx.limits().service);
    let settled = probing::settle(cx, cx.clients(), &targets, within).await?;
    write_effect::must_hold(cx, Effect::Kept, "the victim serves new probes, too", settled);
    undisturbed(cx, victims, agents.as_ref()).await
}
