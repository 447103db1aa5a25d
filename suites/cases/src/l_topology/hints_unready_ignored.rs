//! `hints-unready-ignored`: hints of endpoints that are not ready do not count. When the only endpoint with a hint for
//! the client's zone turns unready, all ready endpoints serve; it stays alive, and gets nothing.
//!
//! It is ready and used at first, so that an implementation comes to the state by a change.
use std::time::Duration;

use harness::{
    case::{Case, Tier},
    context::Context,
    fence,
    policies::Policies,
    probing,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{self, ELSEWHERE, Topology};

pub(crate) const CASE: Case = Case {
    id: "hints-unready-ignored",
    area: super::AREA,
    claims: &["hints-unready-ignored"],
    sentence: "when the only endpoint with a hint for the client's zone turns unready, all ready endpoints serve",
    tier: Tier::Core,
    features: &["topology-hints"],
    needs: staging::NEEDS,
    disruptive: false,
    manifest: include_str!("hints.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with one endpoint for the first node's zone");
    let topology = Topology::create(cx, &["b1", "b2", "b3"]).await?;
    let [b1, b2, b3] = topology.endpoints()?;
    let [here, there] = topology.zones();
    let [b1, b2, b3] = [b1.for_zone(here), b2.for_zone(there), b3.for_zone(ELSEWHERE)];
    let asked = ("PreferClose", Policies::CLUSTER);
    let ready = [b1.clone(), b2.clone(), b3.clone()];
    let mut services = topology.service(cx, "turns", asked, &[&ready]).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let any = topology.any(&services);
    probing::control(cx, "the Service serves", cx.clients(), &any, within).await?;

    cx.phase("fault: the endpoint for the first node's zone turns unready");
    for service in &mut services {
        service
            .list(cx, &[b1.clone().unready(), b2.clone(), b3.clone()])
            .await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: all ready endpoints serve for the hold time");
    topology.dialled(cx, &services).hold(cx, within).await?;
    Ok(())
}
