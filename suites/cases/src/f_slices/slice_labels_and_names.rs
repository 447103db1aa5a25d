//! `slice-labels-and-names`: only the label `kubernetes.io/service-name` binds a slice to its Service. The name of the
//! slice, which program manages it, its owner and `endpointslice.kubernetes.io/skip-mirror` change nothing: the Service
//! of the label is served, the Service that the name or owner points to is not. A slice without the label belongs to no
//! Service, whatever else it says.
//!
//! With `service.kubernetes.io/headless` a slice may be hidden: what becomes of it is recorded.
use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    names::OF_SERVICE,
    pods::{Backend, endpoints},
    probing,
    slices::{MANAGED_BY, Port, Service, Slice, themselves},
    verdict::Halt,
    waiting::Within,
};
use serde_json::json;

use super::{PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-labels-and-names"],
    "only the service-name label binds an EndpointSlice to its Service",
    |cx| Box::pin(run(cx)),
);

const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// What a slice has besides the label that names Service `s`, or instead of it. `t` is another Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    NameOfNone,
    NameOfAnother,
    NoManager,
    AnotherManager,
    OwnedByAnother,
    SkipMirror,
    Headless,
    /// No label, the name and owner of Service `s`, which has an own slice.
    NoLabel,
}

const VARIANTS: [(Variant, &str); 8] = [
    (Variant::NameOfNone, "a name of no Service"),
    (Variant::NameOfAnother, "the name of another Service"),
    (Variant::NoManager, "no manager"),
    (Variant::AnotherManager, "another manager"),
    (Variant::OwnedByAnother, "owned by another Service"),
    (Variant::SkipMirror, "skip-mirror"),
    (Variant::Headless, "headless"),
    (
        Variant::NoLabel,
        "no label, named like the Service and owned by it",
    ),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: slices that other things than the label bind to another Service, or to none");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b", "trap"], &[TARGET], &[TARGET]).await?;
    let (mut judged, mut recorded, mut direct) = (Vec::new(), Vec::new(), Vec::new());
    for point in points(cx, &VARIANTS) {
        let [of_label, other] = stage(cx, &point, &backends[0], &backends[1]).await?;
        judged.push(other);
        if point.variant == Variant::Headless {
            recorded.push((point, of_label));
            continue;
        }
        let by: Vec<_> = backends.iter().map(|backend| (backend, TARGET)).collect();
        direct.extend(themselves(&point.axis(), point.family, &by)?);
        judged.push(of_label);
    }
    let all = Dialled::all(judged);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let what = "backends answer without a Service";
    probing::control(cx, what, &cx.clients()[..1], &direct, within).await?;

    cx.phase("verdict: the Service that the label names is served, and no other for the hold time");
    all.judge_briefly(cx, within).await?;
    all.window(cx).await?.hold(cx).await?;
    for (point, dialled) in recorded {
        let seen = dialled.observed(cx).await?;
        cx.record(&format!("{}: the Service of the label", point.axis()), seen);
    }
    Ok(())
}

/// Services `s` and `t`, and a slice; returns what clients must meet at each.
async fn stage(
    cx: &Context,
    point: &Point<Variant>,
    b: &Backend,
    trap: &Backend,
) -> Result<[Dialled; 2], Halt> {
    let (axis, family, variant) = (point.axis(), point.family, point.variant);
    let namespace = cx.namespace().await?;
    let service =
        async |name: &str| Service::create(cx, &axis, &namespace, name, family, &Port::both(WEB, PORT)).await;
    let (s, t) = (service("s").await?, service("t").await?);
    let slice = |name: &str| s.slice(name, &Port::both(WEB, TARGET));
    let (slice, listed) = match variant {
        Variant::NameOfNone => (slice("anything"), b),
        Variant::NameOfAnother => (slice("t"), b),
        Variant::NoManager => (slice("s").without(MANAGED_BY), b),
        Variant::AnotherManager => (slice("s").labelled(MANAGED_BY, "plumbline-example"), b),
        Variant::OwnedByAnother => (slice("s"), b),
        Variant::SkipMirror => (slice("s").labelled(SKIP_MIRROR, "true"), b),
        Variant::Headless => (slice("s").labelled(HEADLESS, ""), b),
        Variant::NoLabel => (slice("s").without(OF_SERVICE), trap),
    };
    slice.create(cx, endpoints([listed], family)?).await?;
    match variant {
        Variant::OwnedByAnother => own(cx, &slice, &t).await?,
        Variant::NoLabel => {
            own(cx, &slice, &s).await?;
            let labelled = s.slice("s-own", &Port::both(WEB, TARGET));
            labelled.create(cx, endpoints([b], family)?).await?;
        }
        _ => {}
    }
    Ok([s.meets(cx, PORT, &[(b, TARGET)])?, t.meets(cx, PORT, &[])?])
}

/// Makes a Service the owner of a slice.
async fn own(cx: &Context, slice: &Slice, owner: &Service) -> Result<(), Halt> {
    let object = cx.objects().get(owner.key()).await?;
    let owner = json!({
        "apiVersion": "v1", "kind": "Service", "name": owner.key().name, "uid": object["metadata"]["uid"],
    });
    let owned = json!({ "metadata": { "ownerReferences": [owner] } });
    cx.objects().patch(slice.key(), owned).await?;
    Ok(())
}
