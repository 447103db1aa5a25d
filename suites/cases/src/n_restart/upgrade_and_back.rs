//! `upgrade-and-back`: the nodes are upgraded to another release one after the other, and later back, while clients of all
//! nodes dial anew, 200 connections go on, and Services change. No connection fails, and in the end each node serves
//! what the API lists.
//!
//! What changes, changes while the agent of a node is between its releases: a release that takes over what the former one
//! has kept must also take out what has become wrong of it. The connections are to backends on either node and, in
//! transit, through a node port; the claim's failed connections are 0, as no target names another figure.
use std::time::Duration;

use cluster::{AgentState, Capability, Stop, Variant};
use faults::StoppedAgent;
use futures::future::try_join_all;
use harness::{
    agents,
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    frontend_kinds::{Kind, inside_and_outside},
    frontends::{self, Vantage},
    pods::Backend,
    probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;

use super::listed::{Listed, TARGET};

pub(crate) const CASE: Case = Case {
    id: "upgrade-and-back",
    area: super::AREA,
    claims: &["upgrade-and-back"],
    sentence: "no connection fails while nodes are upgraded and rolled back, and each serves what is listed then",
    tier: Tier::Core,
    features: &["upgrade"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside],
        target: &[OfTarget::Variant(Variant::OtherRelease)],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Connections that go on, over all families and vantages.
const FLOWS: u32 = 200;
/// From one exchange of these to the next.
const EXCHANGE: Duration = Duration::from_secs(1);
/// From one new connection of a client to the next.
const DIAL: Duration = Duration::from_millis(50);
const KINDS: [Kind; 2] = [Kind::ClusterIp, Kind::NodePort];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service that stays, and one that changes");
    let namespace = cx.namespace().await?;
    let names = ["near", "far", "former", "latter"];
    let backends = frontends::serving(cx, &namespace, &names, &[TARGET], &[TARGET]).await?;
    let (lasting, moved) = backends.split_at(2);
    let (mut targets, mut changing) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let service = Listed::create(cx, &namespace, ("stays", "stays"), family, &KINDS, lasting).await?;
        targets.extend(service.serves_by(cx, Transport::Tcp, lasting).await?);
        let names = ("changes", "changes");
        changing.push(Listed::create(cx, &namespace, names, family, &KINDS, &moved[..1]).await?);
    }
    let lasting = vantages(cx, &targets);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in lasting.iter().chain(&serving(cx, &changing, &moved[0]).await?) {
        probing::control(cx, "all serve", clients, targets, within).await?;
    }

    cx.phase("load: connections that go on, and new ones all the time");
    let targets: usize = lasting.iter().map(|(_, targets)| targets.len()).sum();
    let each = FLOWS.div_ceil(u32::try_from(targets).unwrap_or(1).max(1));
    let (mut flows, mut windows) = (Flows::none(), Vec::new());
    for (clients, targets) in &lasting {
        let within = Within::from_now(cx.limits().endpoints);
        flows = flows.and(Flows::open_every(cx, clients, targets, each, EXCHANGE, within).await?);
        windows.push(Background::every(cx, clients, targets, DIAL, cx.limits().hold).await?);
    }

    // Listed by turns: of each change the former backend stays alive, and takes what goes wrong.
    let mut turns = moved.iter().rev().chain(moved).cycle();
    cx.phase("the nodes are upgraded, one after the other");
    let mut upgraded = Vec::new();
    let nodes = cx.nodes();
    for (node, next) in nodes.iter().zip(&mut turns) {
        let before = cx.cluster().agents()?.state(node).await?;
        let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
        list(cx, &changing, next).await?;
        upgraded.push(agent.start_as(Variant::OtherRelease).await?);
        runs(cx, node, &before, Some(Variant::OtherRelease)).await?;
        follows(cx, &changing, next).await?;
    }
    cx.phase("and rolled back");
    for ((node, release), next) in nodes.iter().zip(upgraded).zip(&mut turns) {
        let before = cx.cluster().agents()?.state(node).await?;
        let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
        list(cx, &changing, next).await?;
        agent.start().await?;
        release.heal().await?;
        runs(cx, node, &before, None).await?;
        follows(cx, &changing, next).await?;
    }

    cx.phase("verdict: no connection has failed, until the hold time is over");
    try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;
    flows.hold(cx, cx.limits().hold).await?;
    Ok(())
}

/// Returns when a new agent of a node is ready, which must be of this release.
async fn runs(cx: &Context, node: &str, before: &AgentState, release: Option<Variant>) -> Result<(), Halt> {
    agents::ready(cx, node, before, Within::from_now(cx.limits().heal)).await?;
    let found = cx.cluster().agents()?.state(node).await?.variant;
    if found != release {
        let why = format!("expected that {node} runs the release {release:?}, found {found:?}");
        return Err(Halt::Harness(why));
    }
    let release = release.map_or_else(|| "its own release".to_owned(), |other| other.to_string());
    cx.fault(&format!("agent of {node} ended, and started in {release}"));
    Ok(())
}

async fn list(cx: &Context, services: &[Listed], backend: &Backend) -> Result<(), Halt> {
    let listed = std::slice::from_ref(backend);
    try_join_all(services.iter().map(|service| service.list(cx, listed))).await?;
    Ok(())
}

/// Verdict: all nodes serve this backend.
async fn follows(cx: &Context, services: &[Listed], backend: &Backend) -> Result<(), Halt> {
    let within = Within::from_now(cx.limits().heal);
    frontends::judge_all_briefly(cx, &serving(cx, services, backend).await?, within).await
}

async fn serving(cx: &Context, services: &[Listed], backend: &Backend) -> Result<Vec<Vantage>, Halt> {
    let listed = std::slice::from_ref(backend);
    let each = try_join_all(services.iter().map(|service| service.serves(cx, listed))).await?;
    Ok(vantages(cx, &each.concat()))
}

/// ClusterIPs from the pods and hosts of all nodes, and all node ports from outside.
fn vantages(cx: &Context, targets: &[(Kind, Destination)]) -> Vec<Vantage> {
    let [inside, outside] = inside_and_outside(targets);
    let clients = cx.nodes().into_iter().flat_map(|node| cx.clients().on(&node));
    let beyond = cx.clients().outside().map(|client| (vec![client], outside));
    [(clients.collect(), inside)].into_iter().chain(beyond).collect()
}
