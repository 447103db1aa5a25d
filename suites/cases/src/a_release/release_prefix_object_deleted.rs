//! `release-prefix-object-deleted`: run 1: C's slice object is deleted. Run 2: Service C is deleted, slice first and
//! Service first. Run 3: b moves to another slice of C. V serves {b} after the trigger.
//!
//! The slices are hand-written and have no owner, so that no garbage collection chooses the order. The runs are axes,
//! side by side.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    pods::Backend,
    target::Target,
    verdict::Halt,
};

use super::holders::{
    Hold, Holder, SHARED, Wanted, all_serve, backends, released, some, target, undisturbed,
};

pub(crate) const CASE: Case = Case {
    id: "release-prefix-object-deleted",
    area: "A release isolation",
    claims: &["release-prefix-object-deleted"],
    sentence: "a Service keeps its backends when objects of one whose name is a prefix of its own are deleted",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
    },
    disruptive: false,
    manifest: include_str!("release_prefix_object_deleted.yaml"),
    longest: Duration::from_secs(420),
    run: |cx| Box::pin(run(cx)),
};

/// Names: C's is a prefix of V's.
const CULPRIT: &str = "t";
const VICTIM: &str = "t-ext";
/// The other slice of C.
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

struct Pair {
    culprit: Holder,
    victim: Holder,
    release: Release,
    shared: Vec<Backend>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: C and V list the same backends");
    let namespace = cx.namespace().await?;
    let mut points = Vec::new();
    for family in cx.families() {
        for (release, how) in RELEASES {
            for shared in SHARED {
                for victim_first in [true, false] {
                    points.push((family, release, how, shared, victim_first));
                }
            }
        }
    }
    let all = backends(cx, &namespace, points.len()).await?;
    let mut pairs = Vec::new();
    for (at, (family, release, how, shared, victim_first)) in points.into_iter().enumerate() {
        let age = if victim_first { "V older" } else { "V younger" };
        let axis = format!("{family}, {shared} shared, {age}, {how}");
        let (namespace, shared) = (cx.namespace().await?, some(&all, at, shared));
        let wanted = |service| Wanted {
            axis: &axis,
            family,
            namespace: &namespace,
            service,
            slice: service,
            target: target(at),
            backends: &shared,
        };
        let (culprit, victim);
        if victim_first {
            victim = Holder::make(cx, &wanted(VICTIM)).await?;
            culprit = Holder::make(cx, &wanted(CULPRIT)).await?;
        } else {
            culprit = Holder::make(cx, &wanted(CULPRIT)).await?;
            victim = Holder::make(cx, &wanted(VICTIM)).await?;
        }
        pairs.push(Pair {
            culprit,
            victim,
            release,
            shared,
        });
    }
    let agents = cx.agents().await?;
    all_serve(cx, pairs.iter().flat_map(|pair| [&pair.culprit, &pair.victim])).await?;

    cx.phase("release: objects of C are deleted");
    let mut seen = Vec::new();
    for pair in &pairs {
        pair.release(cx).await?;
        seen.extend(pair.seen());
    }
    let victims = || pairs.iter().map(|pair| &pair.victim);
    released(cx, "C is what its objects say", &seen, victims(), Hold::Time).await?;
    undisturbed(cx, victims(), agents.as_ref()).await
}

impl Pair {
    async fn release(&self, cx: &Context) -> Result<(), Halt> {
        let Holder { service, slice, .. } = &self.culprit;
        match self.release {
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
                self.culprit.make_slice(cx, OTHER_SLICE, &self.shared).await?;
                cx.objects().delete(slice).await?;
            }
        }
        Ok(())
    }

    /// What shows that it has happened.
    fn seen(&self) -> Vec<Target> {
        match self.release {
            Release::Slice => vec![self.culprit.refuses()],
            Release::SliceThenService | Release::ServiceThenSlice => vec![self.culprit.is_dead()],
            Release::ToAnotherSlice => self.culprit.serves(),
        }
    }
}
