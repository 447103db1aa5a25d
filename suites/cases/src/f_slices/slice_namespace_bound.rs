//! `slice-namespace-bound`: a slice in another namespace whose label has the name of the Service adds nothing to it,
//! whether it was there first or came later, and whether its own name is that of the Service's slice or another. Nor
//! does it take anything away when it is deleted.
//!
//! What the slice of the other namespace lists is alive, and is to get nothing: also when the Service's own slice is
//! empty, for the hold time.
use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    objects::annotation,
    pods::{Backend, endpoints},
    probing,
    slices::{Port, Service, Slice, themselves},
    verdict::Halt,
    waiting::Within,
};
use serde_json::json;

use super::{PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-namespace-bound"],
    "an EndpointSlice in another namespace whose label names a Service adds nothing to it",
    |cx| Box::pin(run(cx)),
);

/// The slice of the other namespace.
#[derive(Clone, Copy, Debug)]
struct Away {
    has_equal_name: bool,
    is_first: bool,
}

const AWAY: [(Away, &str); 4] = [
    (away(true, true), "a slice of equal name, there first"),
    (away(true, false), "a slice of equal name, there last"),
    (away(false, true), "a slice of another name, there first"),
    (away(false, false), "a slice of another name, there last"),
];

const fn away(has_equal_name: bool, is_first: bool) -> Away {
    Away {
        has_equal_name,
        is_first,
    }
}

struct Staged {
    point: Point<Away>,
    service: Service,
    own: Slice,
    away: Slice,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: slices for one Service in its namespace and in another");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b", "trap"], &[TARGET], &[TARGET]).await?;
    let (b, trap) = (&backends[0], &backends[1]);
    let (mut all, mut direct) = (Vec::new(), Vec::new());
    for (number, point) in points(cx, &AWAY).into_iter().enumerate() {
        direct.extend(themselves(&point.axis(), point.family, &[(trap, TARGET)])?);
        all.push(stage(cx, number, point, b, trap).await?);
    }
    let meets = |by: &[(&Backend, u16)]| {
        let all = all.iter().map(|staged| staged.service.meets(cx, PORT, by));
        all.collect::<Result<Vec<_>, Halt>>().map(Dialled::all)
    };
    let (served, emptied) = (meets(&[(b, TARGET)])?, meets(&[])?);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let what = "the trap answers without the Service";
    probing::control(cx, what, &cx.clients()[..1], &direct, within).await?;

    cx.phase("verdict: the Service's own slice is served, also when the other one is written again");
    served.judge_briefly(cx, within).await?;
    for Staged { away, .. } in &all {
        cx.objects()
            .patch(away.key(), annotation("plumbline-written", "again"))
            .await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    served.judge_briefly(cx, within).await?;

    cx.phase("verdict: without endpoints of its own it is not served, for the hold time");
    for Staged { own, .. } in &all {
        own.list(cx, json!([])).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    emptied.judge_briefly(cx, within).await?;
    emptied.hold(cx).await?;

    cx.phase("verdict: it serves again, and when the slice of the other namespace is gone");
    for Staged { point, own, away, .. } in &all {
        own.list(cx, endpoints([b], point.family)?).await?;
        away.delete(cx).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    served.judge_briefly(cx, within).await
}

async fn stage(
    cx: &Context,
    number: usize,
    point: Point<Away>,
    b: &Backend,
    trap: &Backend,
) -> Result<Staged, Halt> {
    let (
        family,
        Away {
            has_equal_name,
            is_first,
        },
    ) = (point.family, point.variant);
    let home = cx.namespace_ending(number, "-home").await?;
    let other = cx.namespace_ending(number, "-away").await?;
    let ports = Port::both(WEB, TARGET);
    let name = if has_equal_name { "s" } else { "s-away" };
    let away = Slice::new(&other, name, "s", family, &ports);
    if is_first {
        away.create(cx, endpoints([trap], family)?).await?;
    }
    let service = Service::create(cx, &point.axis(), &home, "s", family, &Port::both(WEB, PORT)).await?;
    let own = service.slice("s", &ports);
    own.create(cx, endpoints([b], family)?).await?;
    if !is_first {
        away.create(cx, endpoints([trap], family)?).await?;
    }
    Ok(Staged {
        point,
        service,
        own,
        away,
    })
}
