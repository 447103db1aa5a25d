//! `release-victim-slice-rewritten`: after the release the victim's EndpointSlice is deleted and, 5 s later, created
//! under another name. The victim is refused in between, and serves within the endpoint propagation limit after the
//! creation, without a restart.
//!
//! Both effects are judged, the loss and the return: a victim that serves while it has no EndpointSlice is as wrong as
//! one that stays refused.
use std::time::{Duration, Instant};

use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    probing,
    verdict::Halt,
    waiting::{Within, has_lasted},
    write_effect::Effect,
};

use super::{
    holders::{all_serve, undisturbed, witnessed},
    pairs::{Pair, pairs},
};

pub(crate) const CASE: Case = Case {
    id: "release-victim-slice-rewritten",
    area: super::AREA,
    claims: &["release-victim-slice-rewritten"],
    sentence: "a Service whose EndpointSlice is deleted and created under another name, after a release, is refused and serves again",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("release_victim_slice_rewritten.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// From the deletion to the creation.
const WITHOUT: Duration = Duration::from_secs(5);
/// The other name.
const OTHER_SLICE: &str = "rewritten";

async fn run(cx: &Context) -> Result<(), Halt> {
    let mut pairs = pairs(cx, &[((), "")]).await?;
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;

    cx.phase("release: the culprit is emptied");
    for pair in &mut pairs {
        pair.culprit.list(cx, &[]).await?;
    }
    let released: Vec<Destination> = pairs.iter().map(|pair| pair.culprit.refuses()).collect();
    witnessed(cx, (Effect::Emptied, "the culprit refuses"), &released).await?;

    cx.phase("the victim's EndpointSlice is deleted: the victim is refused");
    for pair in &pairs {
        cx.objects().delete(&pair.victim.slice).await?;
    }
    let deleted = Instant::now();
    let refuses: Vec<Destination> = pairs.iter().map(|pair| pair.victim.refuses()).collect();
    let within = Within::from(deleted, cx.limits().endpoints);
    probing::judge_briefly(cx, cx.clients(), &refuses, within).await?;
    has_lasted(deleted, WITHOUT).await;

    cx.phase("the victim's EndpointSlice is created under another name: the victim serves its backends");
    for pair in &pairs {
        pair.victim.make_slice(cx, OTHER_SLICE, &pair.shared).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    let serves: Vec<Destination> = pairs.iter().flat_map(|pair| pair.victim.serves()).collect();
    probing::judge(cx, cx.clients(), &serves, within).await?;
    // The culprit's stay as they were: the victim's return is not the culprit's.
    probing::judge_briefly(cx, cx.clients(), &released, within).await?;
    undisturbed(cx, pairs.iter().map(|pair| &pair.culprit), agents.as_ref()).await
}
