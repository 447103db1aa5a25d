//! `release-joined-key-collision`: pairs of Services share a backend whose namespace and name, joined without a safe
//! separator, are equal or one a prefix of the other (`a-b`/`c` and `a`/`b-c`; `a`/`bc` and `ab`/`c`; `a`/`web` and
//! `a-b`/`web`). Emptying one leaves the other serving after a trigger.
//!
//! All namespaces begin with the same text of the run, which does not change how their ends compare. Each Service of a
//! pair is the culprit once.
use std::time::Duration;

use cluster::Family;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    verdict::Halt,
    write_effect::Effect,
};

use super::holders::{
    Hold, Holder, SHARED, Wanted, all_serve, backends, released, some, target, undisturbed,
};

pub(crate) const CASE: Case = Case {
    id: "release-joined-key-collision",
    area: super::AREA,
    claims: &["release-joined-key-collision"],
    sentence: "Services keep their backends when another, with which they share the text of namespace and name, is emptied",
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
    manifest: include_str!("release_joined_key_collision.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// End of the namespace's name, and the Service's name, of both of a pair.
type Names = [(&'static str, &'static str); 2];
const PAIRS: [Names; 3] = [
    [("a-b", "c"), ("a", "b-c")],
    [("a", "bc"), ("ab", "c")],
    [("a", "web"), ("a-b", "web")],
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: both of each pair list the same backends");
    let namespace = cx.namespace().await?;
    let points = points(cx);
    let shared = points.iter().map(|(_, shared, _)| *shared);
    let all = backends(cx, &namespace, points.len(), shared).await?;
    let mut pairs: Vec<[Holder; 2]> = Vec::new();
    for point in points {
        let (at, axis) = (pairs.len(), axis(&point));
        let (family, shared, pair) = point;
        let shared_backends = some(&all, at, shared);
        let mut made = Vec::new();
        for (namespace, name) in pair {
            // EndpointSlices of equal names are a claim of their own.
            let slice = if pair[0].1 == pair[1].1 {
                format!("{name}-{namespace}")
            } else {
                name.to_owned()
            };
            let wanted = Wanted {
                axis: &axis,
                family,
                namespace: &cx.namespace_ending(at, namespace).await?,
                service: name,
                slice: &slice,
                target: target(at),
                backends: &shared_backends,
            };
            made.push(Holder::make(cx, &wanted).await?);
        }
        let pair: [Holder; 2] = made
            .try_into()
            .map_err(|_| Halt::Harness("a pair is two".to_owned()))?;
        pairs.push(pair);
    }
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flatten()).await?;

    for (culprit, hold) in [(0, Hold::Probes), (1, Hold::Time)] {
        cx.phase("release: one of each pair is emptied");
        for pair in &mut pairs {
            pair[culprit].list(cx, &[]).await?;
        }
        let seen: Vec<_> = pairs.iter().map(|pair| pair[culprit].refuses()).collect();
        let victims = pairs.iter().map(|pair| &pair[1 - culprit]);
        released(cx, (Effect::Emptied, "it refuses"), &seen, victims, hold).await?;
        if hold == Hold::Probes {
            for pair in &mut pairs {
                pair[culprit].list_again(cx).await?;
            }
            all_serve(cx, pairs.iter().flatten()).await?;
        }
    }
    undisturbed(cx, pairs.iter().map(|[first, _]| first), agents.as_ref()).await
}

fn points(cx: &Context) -> Vec<(Family, usize, Names)> {
    let mut points = Vec::new();
    for family in cx.families() {
        for shared in SHARED {
            points.extend(PAIRS.map(|pair| (family, shared, pair)));
        }
    }
    cx.axes().choose(points, axis)
}

fn axis((family, shared, pair): &(Family, usize, Names)) -> String {
    let joined = pair
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .join(" and ");
    format!("{family}, {shared} shared, {joined}")
}
