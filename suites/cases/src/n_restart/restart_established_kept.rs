//! `restart-established-kept`: 200 TCP connections through a node, each with an exchange in a second, survive the kill
//! and the start of its agent: none is reset, and none waits for 3 s, until the hold time after the start.
//!
//! A third is in transit: from outside to a node port of that node, whose only backend is on another. There no local
//! endpoint says that the flow is needed. The claim's 15 min, which cover the first collections of a new agent, hold
//! for the long profile; other profiles scale them as they do the hold time.
use std::time::Duration;

use cluster::Capability;
use harness::{
    agents::Killed,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    frontend_kinds::Kind,
    frontends, probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;

use super::listed::{Listed, TARGET, through};

pub(crate) const CASE: Case = Case {
    id: "restart-established-kept",
    area: super::AREA,
    claims: &["restart-established-kept"],
    sentence: "no connection through a node is reset or stalls while its agent is killed and starts again",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Connections, over all families and vantages.
const FLOWS: u32 = 200;
/// From one exchange of a connection to the next.
const EVERY: Duration = Duration::from_secs(1);

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with a backend on the node, and one with a backend elsewhere");
    let namespace = cx.namespace().await?;
    let node = &cx.nodes()[0];
    // The first is on the first node, the second on the next.
    let backends = frontends::serving(cx, &namespace, &["near", "far"], &[TARGET], &[TARGET]).await?;
    let mut dialled: Vec<(Vec<Client>, Destination)> = Vec::new();
    for family in cx.families() {
        for (names, backend) in [("here", "on the node"), ("elsewhere", "in transit")]
            .iter()
            .zip(&backends)
        {
            let listed = std::slice::from_ref(backend);
            let kinds = [Kind::ClusterIp, Kind::NodePort];
            let service = Listed::create(cx, &namespace, *names, family, &kinds, listed).await?;
            for (kind, target) in through(node, service.serves_by(cx, Transport::Tcp, listed).await?) {
                let clients = match kind {
                    Kind::ClusterIp => cx.clients().on(node),
                    _ => cx.clients().outside().into_iter().collect(),
                };
                dialled.push((clients, target));
            }
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, target) in &dialled {
        let target = std::slice::from_ref(target);
        probing::control(cx, "all serve", clients, target, within).await?;
    }

    cx.phase("connections are opened, and the agent is killed and starts again");
    let each = FLOWS.div_ceil(u32::try_from(dialled.len()).unwrap_or(1).max(1));
    let mut flows = Flows::none();
    for (clients, target) in &dialled {
        let within = Within::from_now(cx.limits().endpoints);
        let target = std::slice::from_ref(target);
        flows = flows.and(Flows::open_every(cx, clients, target, each, EVERY, within).await?);
    }
    Killed::kill(cx, std::slice::from_ref(node))
        .await?
        .start(cx)
        .await?;

    cx.phase("verdict: none was reset, and none has stalled, until the hold time is over");
    flows.hold(cx, cx.limits().hold).await?;
    Ok(())
}
