//! `hints-same-node`: where all ready endpoints have hints for nodes, those for the client's node serve while one is
//! ready, then those for its zone, then all; and no connection fails at the changes.
//!
//! Every endpoint has both hints. Clients connect without a pause from before the first change to after the last one.
use std::time::Duration;

use harness::{
    background::Background,
    case::{Case, Tier},
    context::Context,
    fence,
    hints::Hinted,
    policies::Policies,
    probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;

use super::staging::{self, ELSEWHERE, Topology};

pub(crate) const CASE: Case = Case {
    id: "hints-same-node",
    area: super::AREA,
    claims: &["hints-same-node"],
    sentence: "endpoints for the client's node serve while one is ready, then those for its zone, then all",
    tier: Tier::Core,
    features: &["prefer-same-node"],
    needs: staging::NEEDS,
    disruptive: false,
    manifest: include_str!("hints.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service whose endpoints have hints for nodes and zones");
    let topology = Topology::create(cx, &["b1", "b2", "b3", "b4"]).await?;
    let [b1, b2, b3, b4] = topology.endpoints()?;
    let ([here, there], [first, second]) = (topology.zones(), topology.nodes());
    let all = [
        b1.for_node(first).for_zone(here),
        b2.for_node(second).for_zone(here),
        b3.for_node(second).for_zone(there),
        b4.for_node(second).for_zone(ELSEWHERE),
    ];
    let asked = ("PreferSameNode", Policies::CLUSTER);
    let mut services = topology.service(cx, "nearest", asked, &[&all]).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let any = topology.any(&services);
    probing::control(cx, "the Service serves", cx.clients(), &any, within).await?;
    topology.dialled(cx, &services).judge(cx, within).await?;
    let throughout = Background::start(cx, cx.clients(), &any, cx.limits().hold).await?;

    // Without that for the node; without those for the zone; and all again.
    for unready in [1, 2, 0] {
        cx.phase(&format!(
            "{unready} endpoints for the first node and its zone are unready"
        ));
        let of = |(at, endpoint): (usize, &Hinted)| {
            if at < unready {
                endpoint.clone().unready()
            } else {
                endpoint.clone()
            }
        };
        let listed: Vec<_> = all.iter().enumerate().map(of).collect();
        for service in &mut services {
            service.list(cx, &listed).await?;
        }
        let within = Within::from_now(cx.limits().endpoints);
        fence::pass(cx).await?;
        // A new socket may have the port of a flow of datagrams that goes on with its backend, which still serves.
        let connections = topology
            .dialled(cx, &services)
            .only(|target| target.transport == Transport::Tcp);
        connections.judge_briefly(cx, within).await?;
    }

    cx.phase("verdict: no connection failed meanwhile");
    throughout.hold(cx).await?;
    Ok(())
}
