//! `slice-ready-is-what-counts`: missing conditions count as ready, as serving and as not terminating, and `ready`
//! decides whether an endpoint is served. A table: each row is a Service with one entry, of a backend that is alive.
//!
//! `ready: true` with `serving: false` is what controllers write for Services that publish addresses before they are
//! ready.
use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    pods::Backend,
    probing,
    slices::{Port, Service, entry, themselves},
    verdict::Halt,
    waiting::Within,
};
use serde_json::{Value, json};

use super::{PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-ready-is-what-counts"],
    "missing endpoint conditions count as ready and not terminating, and `ready` decides",
    |cx| Box::pin(run(cx)),
);

/// `ready`, `serving` and `terminating` of the only entry, and whether it is served.
#[derive(Clone, Copy, Debug)]
struct Row {
    conditions: [Option<bool>; 3],
    is_served: bool,
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

const ROWS: [(Row, &str); 8] = [
    (only_entry([None, None, None], true), "no conditions"),
    (only_entry([None, NO, None], true), "serving false"),
    (only_entry([None, None, YES], true), "terminating true"),
    (only_entry([YES, NO, None], true), "ready true, serving false"),
    (
        only_entry([YES, NO, YES], true),
        "ready true, serving false, terminating true",
    ),
    (only_entry([NO, None, None], false), "ready false"),
    (only_entry([NO, YES, None], false), "ready false, serving true"),
    // Nothing is ready, so that endpoints that are terminating and still serve take its place.
    (only_entry([NO, None, YES], true), "ready false, terminating true"),
];

const fn only_entry(conditions: [Option<bool>; 3], is_served: bool) -> Row {
    Row {
        conditions,
        is_served,
    }
}

impl Row {
    /// As they are written: what is not there is not written.
    fn conditions(self) -> Value {
        let named = ["ready", "serving", "terminating"]
            .into_iter()
            .zip(self.conditions);
        let written = named.filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
        Value::Object(written.collect())
    }
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with one entry for each row");
    let namespace = cx.namespace().await?;
    let b = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET])
        .await?
        .remove(0);
    let (mut all, mut direct) = (Vec::new(), Vec::new());
    for point in points(cx, &ROWS) {
        all.push(stage(cx, &point, &b).await?);
        direct.extend(themselves(&point.axis(), point.family, &[(&b, TARGET)])?);
    }
    let all = Dialled::all(all);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let what = "the backend answers without the Service";
    probing::control(cx, what, &cx.clients()[..1], &direct, within).await?;

    cx.phase("verdict: what is ready is served, and for the hold time nothing else");
    all.judge_briefly(cx, within).await?;
    all.window(cx).await?.hold(cx).await?;
    Ok(())
}

async fn stage(cx: &Context, point: &Point<Row>, b: &Backend) -> Result<Dialled, Halt> {
    let (family, row, axis) = (point.family, point.variant, point.axis());
    let namespace = cx.namespace().await?;
    let service = Service::create(cx, &axis, &namespace, "s", family, &Port::both(WEB, PORT)).await?;
    let slice = service.slice("s", &Port::both(WEB, TARGET));
    slice
        .create(cx, json!([entry(b, family, row.conditions())?]))
        .await?;
    let stored = cx.objects().get(slice.key()).await?;
    let conditions = &stored["endpoints"][0]["conditions"];
    if *conditions != row.conditions() {
        let why = format!(
            "expected the conditions {}, the API keeps {conditions}",
            row.conditions()
        );
        cx.axes().inconclusive(&axis, why, Vec::new());
    }
    let by = [(b, TARGET)];
    service.meets(cx, PORT, if row.is_served { &by } else { &[] })
}
