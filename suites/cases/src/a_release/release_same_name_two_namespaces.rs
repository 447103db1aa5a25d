//! `release-same-name-two-namespaces`: `ns1/equal` and `ns2/equal` share backends, and their EndpointSlices have the
//! same name. Emptying, and then deleting, the EndpointSlice in ns1 leaves `ns2/equal` serving after a trigger.
//!
//! The names of the EndpointSlices are fixed: generated names cannot collide.
use std::time::Duration;

use cluster::Family;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    pods::Backend,
    verdict::Halt,
    write_effect::Effect,
};

use super::holders::{
    Hold, Holder, SHARED, Wanted, all_serve, backends, released, some, target, undisturbed,
};

pub(crate) const CASE: Case = Case {
    id: "release-same-name-two-namespaces",
    area: super::AREA,
    claims: &["release-same-name-two-namespaces"],
    sentence: "a Service keeps its backends when one of the same name in another namespace is emptied and its EndpointSlice deleted",
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
    manifest: include_str!("release_same_name_two_namespaces.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const NAME: &str = "equal";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: one name in two namespaces lists the same backends, in EndpointSlices of one name");
    let namespace = cx.namespace().await?;
    let points = points(cx);
    let shared = points.iter().map(|(_, shared, _)| *shared);
    let all = backends(cx, &namespace, points.len(), shared).await?;
    // The culprit, and the victim.
    let mut pairs: Vec<[Holder; 2]> = Vec::new();
    for point in points {
        let (at, axis) = (pairs.len(), axis(&point));
        let (family, shared, victim_first) = point;
        let shared = some(&all, at, shared);
        let first = make(cx, &axis, family, (at, "first"), &shared).await?;
        let second = make(cx, &axis, family, (at, "second"), &shared).await?;
        pairs.push(if victim_first {
            [second, first]
        } else {
            [first, second]
        });
    }
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flatten()).await?;

    cx.phase("release: the EndpointSlice in ns1 is emptied");
    for [culprit, _] in &mut pairs {
        culprit.list(cx, &[]).await?;
    }
    let seen: Vec<_> = pairs.iter().map(|[culprit, _]| culprit.refuses()).collect();
    let victims = || pairs.iter().map(|[_, victim]| victim);
    released(
        cx,
        (Effect::Emptied, "the one in ns1 refuses"),
        &seen,
        victims(),
        Hold::Probes,
    )
    .await?;

    cx.phase("release: the EndpointSlice in ns1 is deleted");
    for [culprit, _] in &pairs {
        cx.objects().delete(&culprit.slice).await?;
    }
    released(
        cx,
        (Effect::Emptied, "the one in ns1 still refuses"),
        &seen,
        victims(),
        Hold::Time,
    )
    .await?;
    undisturbed(cx, victims(), agents.as_ref()).await
}

fn points(cx: &Context) -> Vec<(Family, usize, bool)> {
    let mut points = Vec::new();
    for family in cx.families() {
        for shared in SHARED {
            points.extend([true, false].map(|victim_first| (family, shared, victim_first)));
        }
    }
    cx.axes().choose(points, axis)
}

fn axis((family, shared, victim_first): &(Family, usize, bool)) -> String {
    let age = if *victim_first { "ns2 older" } else { "ns2 younger" };
    format!("{family}, {shared} shared, {age}")
}

async fn make(
    cx: &Context,
    axis: &str,
    family: Family,
    (at, which): (usize, &str),
    shared: &[Backend],
) -> Result<Holder, Halt> {
    let namespace = cx.namespace_ending(at, &format!("-{which}")).await?;
    let wanted = Wanted {
        axis,
        family,
        namespace: &namespace,
        service: NAME,
        slice: NAME,
        target: target(at),
        backends: shared,
    };
    Holder::make(cx, &wanted).await
}
