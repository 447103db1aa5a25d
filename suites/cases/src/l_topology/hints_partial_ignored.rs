//! `hints-partial-ignored`: where one ready endpoint has no hint, in the same EndpointSlice or in another one, or no
//! hint is for the client's zone, all ready endpoints serve.
//!
//! The control is a twin with complete hints, which the same backends serve. What a client meets on a node without a
//! zone is not tried here: no cluster lets a case change its nodes.
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
    id: "hints-partial-ignored",
    area: super::AREA,
    claims: &["hints-partial-ignored"],
    sentence: "where an endpoint has no hint, or none is for the client's zone, all ready endpoints serve",
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
    cx.phase("staging: Services with incomplete hints, and a twin with complete ones");
    let topology = Topology::create(cx, &["b1", "b2"]).await?;
    let [b1, b2] = topology.endpoints()?;
    let [here, there] = topology.zones();
    let [first, second] = [b1.clone().for_zone(here), b2.clone().for_zone(there)];
    let elsewhere = [b1.for_zone(ELSEWHERE), b2.clone().for_zone(ELSEWHERE)];
    let complete = [first.clone(), second];
    let bare = [first.clone(), b2.clone()];
    let [apart, unhinted] = [[first], [b2]];
    let asked = ("PreferClose", Policies::CLUSTER);
    let twin = topology.service(cx, "twin", asked, &[&complete]).await?;
    let mut services = topology.service(cx, "bare", asked, &[&bare]).await?;
    services.extend(topology.service(cx, "apart", asked, &[&apart, &unhinted]).await?);
    services.extend(topology.service(cx, "elsewhere", asked, &[&elsewhere]).await?);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let any = topology.any(&twin);
    probing::control(
        cx,
        "a twin with complete hints serves",
        cx.clients(),
        &any,
        within,
    )
    .await?;

    cx.phase("verdict: all ready endpoints serve");
    topology.dialled(cx, &services).judge(cx, within).await?;
    Ok(())
}
