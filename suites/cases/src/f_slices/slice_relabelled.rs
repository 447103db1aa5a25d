//! `slice-relabelled`: the service-name label of a slice changes from one Service to another, and back. Within the
//! endpoint propagation limit the first Service is without the endpoint of that slice and the second has it, and stays
//! so for the hold time.
//!
//! Each Service keeps an endpoint of another slice, which must be served throughout: one that has become empty would
//! not be taken for the effect. That the slice was changed, and not deleted and made again, is seen in the suite's own
//! watch.
use harness::{
    case::{Case, Tier},
    context::Context,
    dialled::Dialled,
    fence, frontends,
    names::OF_SERVICE,
    pods::{Backend, endpoints},
    slices::{Port, Service, Slice},
    verdict::Halt,
    waiting::Within,
};
use serde_json::json;

use super::{PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = Case {
    manifest: include_str!("slices.yaml"),
    tier: Tier::Robustness,
    ..row(
        &["slice-relabelled"],
        "an EndpointSlice whose service-name label changes moves its endpoints from one Service to the other",
        |cx| Box::pin(run(cx)),
    )
};

/// Names of the two Services: neither the beginning of the other, or the first one of the second.
const NAMES: [([&str; 2], &str); 2] = [
    (["first", "second"], "other names"),
    (["t", "t-ext"], "a name and its beginning"),
];

struct Staged {
    point: Point<[&'static str; 2]>,
    services: [Service; 2],
    moving: Slice,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: two Services, and a slice that is to move between them");
    let namespace = cx.namespace().await?;
    let names = ["b1", "b2", "moving"];
    let backends = frontends::serving(cx, &namespace, &names, &[TARGET], &[TARGET]).await?;
    let mut all = Vec::new();
    for point in points(cx, &NAMES) {
        all.push(stage(cx, point, &backends).await?);
    }
    // Where the slice belongs to the Service of this index.
    let meets = |owner: usize| {
        let of = |staged: &Staged| {
            let each = [0, 1].map(|at| {
                let by = [(&backends[at], TARGET), (&backends[2], TARGET)];
                staged.services[at].meets(cx, PORT, &by[..if at == owner { 2 } else { 1 }])
            });
            let [first, second] = each;
            Ok::<_, Halt>(Dialled::all([first?, second?]))
        };
        all.iter()
            .map(of)
            .collect::<Result<Vec<_>, Halt>>()
            .map(Dialled::all)
    };
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    meets(0)?
        .control(cx, "the slice is served by the Service that it names", within)
        .await?;

    for owner in [1, 0] {
        cx.phase("fault: the label of the slice names the other Service");
        for Staged { services, moving, .. } in &all {
            let label = json!({ "metadata": { "labels": { OF_SERVICE: services[owner].key().plain() } } });
            cx.objects().patch(moving.key(), label).await?;
        }
        let within = Within::from_now(cx.limits().endpoints);
        fence::pass(cx).await?;

        cx.phase("verdict: its endpoint is served there, and not by the former Service");
        meets(owner)?.judge_briefly(cx, within).await?;
    }
    meets(0)?.hold(cx).await?;
    for Staged { point, moving, .. } in &all {
        let versions = cx.objects().watch().versions(moving.key());
        if versions.iter().any(|version| version.deleted) {
            let why = format!("another client of the API has deleted {}", moving.key());
            cx.axes().inconclusive(&point.axis(), why, Vec::new());
        }
    }
    Ok(())
}

async fn stage(cx: &Context, point: Point<[&'static str; 2]>, backends: &[Backend]) -> Result<Staged, Halt> {
    let (axis, family) = (point.axis(), point.family);
    let namespace = cx.namespace().await?;
    let service = async |at: usize| {
        let name = point.variant[at];
        let made = Service::create(cx, &axis, &namespace, name, family, &Port::both(WEB, PORT)).await?;
        let own = made.slice(name, &Port::both(WEB, TARGET));
        own.create(cx, endpoints([&backends[at]], family)?).await?;
        Ok::<_, Halt>(made)
    };
    let services = [service(0).await?, service(1).await?];
    let moving = services[0].slice("moving", &Port::both(WEB, TARGET));
    moving.create(cx, endpoints([&backends[2]], family)?).await?;
    Ok(Staged {
        point,
        services,
        moving,
    })
}
