//! `release-prefix-object-deleted`: (1) the culprit's EndpointSlice is deleted; (2) the culprit is deleted,
//! EndpointSlice first and Service first; (3) the backend moves to another EndpointSlice of the culprit. The victim
//! serves after the trigger.
//!
//! The EndpointSlices are hand-written and have no owner, so that garbage collection does not choose the order. The
//! variants are axes and run concurrently.
use std::time::Duration;

use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    verdict::Halt,
    write_effect::Effect,
};

use super::{
    holders::{Hold, Holder, all_serve, serve_on, undisturbed, witnessed},
    pairs::{Pair, pairs, victims},
};

pub(crate) const CASE: Case = Case {
    id: "release-prefix-object-deleted",
    area: super::AREA,
    claims: &["release-prefix-object-deleted"],
    sentence: "a Service keeps its backends when objects of one whose name is a prefix of its own are deleted",
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
    manifest: include_str!("release_prefix_object_deleted.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// The culprit's other EndpointSlice.
const OTHER_SLICE: &str = "t-other";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Slice,
    SliceThenService,
    ServiceThenSlice,
    ToAnotherSlice,
}

const RELEASES: [(Release, &str); 4] = [
    (Release::Slice, "slice deleted"),
    (Release::SliceThenService, "slice, then Service deleted"),
    (Release::ServiceThenSlice, "Service, then slice deleted"),
    (Release::ToAnotherSlice, "moved to another slice"),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    let pairs = pairs(cx, &RELEASES).await?;
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;

    cx.phase("release: objects of the culprit are deleted");
    for pair in &pairs {
        release(cx, pair).await?;
    }
    for (effect, what) in [
        (Effect::Emptied, "the culprit without its EndpointSlice refuses"),
        (Effect::Deleted, "the deleted culprit is not served"),
        (Effect::Moved, "the culprit serves its moved endpoints"),
    ] {
        let seen: Vec<Destination> = pairs
            .iter()
            .filter(|pair| pair.how.effect() == effect)
            .flat_map(shows)
            .collect();
        if !seen.is_empty() {
            witnessed(cx, (effect, what), &seen).await?;
        }
    }
    let victims = || victims(&pairs);
    serve_on(cx, "1", victims(), Hold::Time).await?;
    undisturbed(cx, victims(), agents.as_ref()).await
}

impl Release {
    /// What the culprit must become.
    fn effect(self) -> Effect {
        match self {
            Self::Slice => Effect::Emptied,
            Self::SliceThenService | Self::ServiceThenSlice => Effect::Deleted,
            Self::ToAnotherSlice => Effect::Moved,
        }
    }
}

async fn release(cx: &Context, pair: &Pair<Release>) -> Result<(), Halt> {
    let Holder { service, slice, .. } = &pair.culprit;
    match pair.how {
        Release::Slice => {
            cx.objects().delete(slice).await?;
        }
        Release::SliceThenService => {
            cx.objects().delete(slice).await?;
            cx.objects().delete(service).await?;
        }
        Release::ServiceThenSlice => {
            cx.objects().delete(service).await?;
            cx.objects().delete(slice).await?;
        }
        Release::ToAnotherSlice => {
            pair.culprit.make_slice(cx, OTHER_SLICE, &pair.shared).await?;
            cx.objects().delete(slice).await?;
        }
    }
    Ok(())
}

/// Witness of the release.
fn shows(pair: &Pair<Release>) -> Vec<Destination> {
    match pair.how {
        Release::Slice => vec![pair.culprit.refuses()],
        Release::SliceThenService | Release::ServiceThenSlice => vec![pair.culprit.is_dead()],
        Release::ToAnotherSlice => pair.culprit.serves(),
    }
}
