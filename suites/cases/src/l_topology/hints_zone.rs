//! `hints-zone`: where all ready endpoints have hints for zones and one is for the client's, only those with that hint
//! serve. With `internalTrafficPolicy: Local` the client's node decides instead.
//!
//! Each node has a backend. In one Service hints name the backends' own zones, in the others those of the other node:
//! it is hints that count, and not where a backend is.
use std::time::Duration;

use harness::{
    case::{Case, Tier},
    context::Context,
    fence,
    policies::Policies,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{self, Topology};

pub(crate) const CASE: Case = Case {
    id: "hints-zone",
    area: super::AREA,
    claims: &["hints-zone"],
    sentence: "where all ready endpoints have zone hints, only those for the client's zone serve",
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
    cx.phase("staging: Services with hints for the nodes' zones");
    let topology = Topology::create(cx, &["b1", "b2"]).await?;
    let [b1, b2] = topology.endpoints()?;
    let [here, there] = topology.zones();
    let own = [b1.clone().for_zone(here), b2.clone().for_zone(there)];
    let crossed = [b1.for_zone(there), b2.for_zone(here)];
    let mut services = Vec::new();
    for (name, policies, endpoints) in [
        ("own", Policies::CLUSTER, &own),
        ("crossed", Policies::CLUSTER, &crossed),
        ("local", Policies::INTERNAL, &crossed),
    ] {
        let asked = ("PreferClose", policies);
        services.extend(topology.service(cx, name, asked, &[endpoints]).await?);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: each client's zone, or its node, decides");
    topology.dialled(cx, &services).hold(cx, within).await?;
    Ok(())
}
