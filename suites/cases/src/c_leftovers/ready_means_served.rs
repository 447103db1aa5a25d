//! `ready-means-served`: an agent that has been ready for 60 s serves a control Service from hosts, pods and outside on
//! its node. An agent that is ready while the control fails for the endpoint propagation limit fails the claim.
//!
//! The fault is one in which an agent may report ready wrongly: programs of its earlier start run first on its cgroup
//! and on the devices of its node, and backends have changed since. An agent that is not ready need not serve; a ready
//! one must, at each kind of hook. Every run of the areas B, C and N is watched in the same way, by a Service that none
//! of its cases changes, and shows it as an axis of its own.
use std::time::{Duration, Instant};

use cluster::{Capability, Family, Stop};
use faults::{Again, LeftoverPackets, LeftoverPrograms, Staging, StoppedAgent};
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence, probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::{Within, has_lasted},
};

use super::{generations::CONNECT, node_ports::NodePorts};

pub(crate) const CASE: Case = Case {
    id: "ready-means-served",
    area: super::AREA,
    claims: &["ready-means-served"],
    sentence: "an agent that has been ready for a minute serves clients on its host, in pods and outside",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentPins],
        target: &[OfTarget::ProgramsAtOrPacketPrograms(CONNECT)],
    },
    disruptive: true,
    manifest: include_str!("node_ports.yaml"),
    longest: Duration::from_secs(600),
    // Ready for a minute, and then failing for the endpoint propagation limit.
    takes_at_least: Duration::from_secs(60),
    run: |cx| Box::pin(run(cx)),
};

const AXIS: &str = "leftovers of its own";

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase("generation 1, the old backend serves");
    let mut services = Vec::new();
    for family in cx.families() {
        services.push(NodePorts::stage(cx, AXIS, family, node).await?);
    }
    fence::pass(cx).await?;
    let vantages = |targets: [fn(&NodePorts) -> Vec<Destination>; 2]| {
        let [cluster_ips, ports] = targets.map(|of| services.iter().flat_map(of).collect::<Vec<_>>());
        let mut vantages: Vec<(Vec<Client>, Vec<Destination>)> = vec![(cx.clients().on(node), cluster_ips)];
        vantages.extend(cx.clients().outside().map(|outside| (vec![outside], ports)));
        vantages
    };
    for (clients, targets) in vantages([NodePorts::old_cluster_ips, NodePorts::old_ports]) {
        let within = Within::from_now(cx.limits().service);
        probing::control(
            cx,
            "generation 1 serves the old backend",
            &clients,
            &targets,
            within,
        )
        .await?;
    }

    cx.phase("generation 1 is killed, its programs stay, backends change");
    let before = cx.cluster().agents()?.state(node).await?;
    let expires = cx.limits().longest(CASE.longest);
    let hooks: Vec<&str> = cx
        .families()
        .into_iter()
        .map(|family| match family {
            Family::IPv4 => "connect4",
            Family::IPv6 => "connect6",
        })
        .collect();
    let mut sockets = LeftoverPrograms::hold(cx.cluster(), node, &hooks, expires).await?;
    let mut packets = LeftoverPackets::hold(cx.cluster(), node, expires).await?;
    if sockets.held().is_empty() && packets.held().is_empty() {
        return Err(Halt::Inconclusive(
            "the implementation has no program at its cgroup or at devices any more".to_owned(),
        ));
    }
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    agent.lose_pins().await?;
    sockets.attach(Staging::default()).await?;
    packets.attach(Again::Filters).await?;
    cx.fault(&format!(
        "agent of {node} killed, its pins lost, its programs attached again: {:?}, {:?}",
        sockets.list().await?,
        packets.list().await?
    ));
    for service in &services {
        service.replace(cx).await?;
    }
    cx.phase("witness, the leftovers send to the old backend");
    let within = Within::from_now(cx.limits().endpoints);
    for (clients, targets) in vantages([NodePorts::old_connecting, NodePorts::old_ports]) {
        probing::witness(cx, "the leftovers send to the trap", &clients, &targets, within).await?;
    }

    cx.phase("generation 2 starts, and reports that it is ready");
    let started = Within::from_now(cx.limits().heal);
    agent.start().await?;
    let Some(ready) = agents::ready(cx, node, &before, started).await? else {
        let why = format!(
            "the agent was not ready within {:?}: its readiness shows nothing",
            started.limit
        );
        return Err(Halt::Inconclusive(why));
    };
    cx.record_delay(
        "generation 2 is ready",
        ready.duration_since(started.since),
        started.limit,
    );
    has_lasted(ready, cx.limits().ready).await;
    let state = cx.cluster().agents()?.state(node).await?;
    if state.ready != Some(true) {
        let why = "the agent became unready again: its readiness shows nothing".to_owned();
        return Err(Halt::Inconclusive(why));
    }
    cx.phase("verdict, it serves");
    let within = Within::from(Instant::now(), cx.limits().endpoints);
    let now = vantages([NodePorts::cluster_ips_now, NodePorts::ports_now]);
    for (clients, targets) in &now {
        probing::judge(cx, clients, targets, within).await?;
    }

    cx.phase("heal");
    let left = (sockets.heal().await?, packets.heal().await?);
    cx.fault(&format!("healed: {left:?} detached"));
    for (clients, targets) in &now {
        probing::judge_briefly(cx, clients, targets, Within::from_now(cx.limits().heal)).await?;
    }
    Ok(())
}
