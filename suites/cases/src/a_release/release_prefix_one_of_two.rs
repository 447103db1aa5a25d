//! `release-prefix-one-of-two`: `t` (the culprit) and `t-ext` (the victim) list the same two backends; the culprit
//! drops one. After the trigger the victim serves both, each with at least a quarter of N.
//!
//! The culprit must be seen to serve the other one only, and is not emptied: a partial release may take another code
//! path.
use std::time::Duration;

use cluster::Family;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing,
    verdict::Halt,
    write_effect::Effect,
};

use super::holders::{Hold, Holder, Wanted, all_serve, backends, released, some, target, undisturbed};

pub(crate) const CASE: Case = Case {
    id: "release-prefix-one-of-two",
    area: super::AREA,
    claims: &["release-prefix-one-of-two"],
    sentence: "a Service keeps both backends when one whose name is a prefix of its own drops one of them",
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
    manifest: include_str!("release_prefix_one_of_two.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Their names: the culprit's is a prefix of the victim's.
const CULPRIT: &str = "t";
const VICTIM: &str = "t-ext";
/// Smallest share of a client's probes for each backend.
const LEAST_SHARE: f64 = 0.25;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: culprit and victim list b1 and b2");
    let namespace = cx.namespace().await?;
    let orders = [[CULPRIT, VICTIM], [VICTIM, CULPRIT]];
    let of = |family| orders.map(|order| (family, order));
    let points = cx
        .axes()
        .choose(cx.families().into_iter().flat_map(of).collect(), axis);
    let all = backends(cx, &namespace, points.len(), [2]).await?;
    let mut pairs = Vec::new();
    for point in points {
        let (at, axis) = (pairs.len(), axis(&point));
        let (family, order) = point;
        let (namespace, both) = (cx.namespace().await?, some(&all, at, 2));
        let mut made = Vec::new();
        for service in order {
            let wanted = Wanted {
                axis: &axis,
                family,
                namespace: &namespace,
                service,
                slice: service,
                target: target(at),
                backends: &both,
            };
            made.push(Holder::make(cx, &wanted).await?);
        }
        if order[0] == VICTIM {
            made.reverse();
        }
        pairs.push((made, both));
    }
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(|(made, _)| made)).await?;

    cx.phase("release: the culprit drops b1");
    let mut seen = Vec::new();
    for (made, both) in &mut pairs {
        let left = &both[1..];
        made[0].list(cx, left).await?;
        seen.extend(made[0].serves_only(left));
    }
    let victims = || pairs.iter().map(|(made, _)| &made[1]);
    let attempts = released(
        cx,
        (Effect::Left, "the culprit serves b2 only"),
        &seen,
        victims(),
        Hold::Time,
    )
    .await?;
    if cx.axes().has_n("shares of both backends") {
        for victim in victims() {
            probing::judge_shares(cx, cx.clients(), &victim.serves(), &attempts, LEAST_SHARE);
        }
    }
    undisturbed(cx, victims(), agents.as_ref()).await
}

/// For a family, with the Services in the order of their creation.
fn axis((family, order): &(Family, [&str; 2])) -> String {
    let age = if order[0] == VICTIM {
        "victim older"
    } else {
        "victim younger"
    };
    format!("{family}, {age}")
}
