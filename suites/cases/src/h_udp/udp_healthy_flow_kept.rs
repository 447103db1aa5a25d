//! `udp-healthy-flow-kept`: connected UDP sockets keep their backends while an endpoint is added, another one removed,
//! the external policy of a Service that they reach by its ClusterIP and the internal one of a Service that they reach by
//! its node ports change, and endpoints get hints for a zone that no node is in. `udp-healthy-flow-kept-restart`: also
//! while agents are restarted, one after the other.
//!
//! There are five backends, so that a flow that chooses again meets another one four times of five. Sockets of the
//! backend that is removed are left out. What unconnected sockets meet is `udp-socket-sticks`.
use std::time::Duration;

use cluster::{Capability, Family, Stop};
use faults::StoppedAgent;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, frontends,
    pods::{Backend, endpoints},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

use super::staging::{Frontend, Senders, Service, TARGET, Talk};

pub(crate) const CASE: Case = Case {
    id: "udp-healthy-flow-kept",
    area: super::AREA,
    claims: &["udp-healthy-flow-kept"],
    sentence: "changes that leave a UDP flow's backend serving do not move the flow",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, Changes::Objects)),
};
pub(crate) const RESTART: Case = Case {
    id: "udp-healthy-flow-kept-restart",
    sentence: "restarts of agents do not move UDP flows",
    tier: Tier::Robustness,
    needs: Needs {
        rights: Rights::Node,
        also: &[Capability::HostNetwork],
        ..CASE.needs
    },
    disruptive: true,
    run: |cx| Box::pin(run(cx, Changes::Agents)),
    ..CASE
};

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changes {
    Objects,
    Agents,
}

/// Flows of each client to each target: that all of them have the backend that is removed happens once in 3,000 times.
const FLOWS: u32 = 5;
/// A Service for each frontend that flows go through, and the policy that is not theirs.
const THROUGH: [(Frontend, &str, &str); 2] = [
    (Frontend::ClusterIp, "by-cip", "externalTrafficPolicy"),
    (Frontend::NodePorts, "by-np", "internalTrafficPolicy"),
];

async fn run(cx: &Context, changes: Changes) -> Result<(), Halt> {
    cx.phase("staging: Services with five of six backends, and sockets that are connected to them");
    let namespace = cx.namespace().await?;
    let names = ["leaves", "b2", "b3", "b4", "b5", "added"];
    let all = frontends::serving(cx, &namespace, &names, &[], &[TARGET]).await?;
    let five = &all[..5];
    let mut services = Vec::new();
    for family in cx.families() {
        for (_, name, ..) in THROUGH {
            let frontends = &[Frontend::NodePorts];
            services.push(Service::create(cx, family, (&namespace, name), frontends, five).await?);
        }
    }
    fence::pass(cx).await?;
    let mut senders = Senders::none();
    for (service, (frontend, ..)) in services.iter().zip(THROUGH.iter().cycle()) {
        let dialled = service.dialled(cx, &[*frontend], Talk::Connected, "").await?;
        senders = senders
            .and_served(cx, dialled, Talk::Connected, FLOWS, five)
            .await?;
    }
    let (served, within) = (senders.reaching(five), Within::from_now(cx.limits().service));
    let control = senders.flows().control(cx, "all are answered", &served, within);
    control.await?;

    if changes == Changes::Agents {
        cx.phase("fault: agents are restarted, one after the other");
        restart(cx).await?;
    } else {
        for (service, (_, _, policy)) in services.iter().zip(THROUGH.iter().cycle()) {
            cx.phase(&format!("{} changes", service.made.service.plain()));
            change(cx, service, &all, policy).await?;
        }
    }

    cx.phase("verdict: all sockets have the backends that they had");
    let leaves = all[0].identity(Transport::Udp, TARGET);
    let flows = senders.into_flows(&all);
    let stays = |identity: &str| changes == Changes::Agents || identity != leaves;
    flows.hold_those(cx, cx.limits().hold, stays).await?;
    Ok(())
}

/// An endpoint comes, another one goes, the policy is `Local` and `Cluster` again, and endpoints get hints.
async fn change(cx: &Context, service: &Service, all: &[Backend], policy: &str) -> Result<(), Halt> {
    let family = service.made.family;
    service.list(cx, all).await?;
    fence::pass(cx).await?;
    service.list(cx, &all[1..]).await?;
    fence::pass(cx).await?;
    for value in ["Local", "Cluster"] {
        let spec = json!({ "spec": { policy: value } });
        cx.objects().patch(&service.made.service, spec).await?;
        fence::pass(cx).await?;
    }
    let hinted = hinted(&all[1..], family)?;
    cx.objects()
        .patch(&service.slice, json!({ "endpoints": hinted }))
        .await?;
    fence::pass(cx).await
}

fn hinted(backends: &[Backend], family: Family) -> Result<Value, Halt> {
    let mut all = endpoints(backends, family)?;
    for one in all.as_array_mut().into_iter().flatten() {
        one["hints"] = json!({ "forZones": [{ "name": "elsewhere" }] });
    }
    Ok(all)
}

async fn restart(cx: &Context) -> Result<(), Halt> {
    for node in cx.nodes() {
        let before = cx.cluster().agents()?.state(&node).await?;
        let agent = StoppedAgent::stop(cx.faults(), &node, Stop::Term).await?;
        let within = Within::from_now(cx.limits().heal);
        agent.start().await?;
        agents::ready(cx, &node, &before, within).await?;
    }
    fence::pass(cx).await
}
