//! `slice-odd-contents-ignored`: a slice of host names, and a slice whose `ports` are null, add no backend to their
//! Service, whether it has others or not, and do not disturb these: no connection fails when they appear, no agent
//! ends, and a later change of the other slice is in force.
//!
//! The slice with null ports lists a backend that is alive and answers at the Service's target port; it gets nothing
//! for the hold time.
use harness::{
    agents,
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    pods::{Backend, endpoints},
    probing,
    slices::{Port, Service, Slice, themselves},
    verdict::Halt,
    waiting::Within,
};
use oracle::finding::{Finding, Weight};
use serde_json::json;

use super::{PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-odd-contents-ignored"],
    "EndpointSlices of host names or without ports add nothing to a Service and disturb no other",
    |cx| Box::pin(run(cx)),
);

#[derive(Clone, Copy, Debug)]
struct Odd {
    is_of_host_names: bool,
    /// Whether the Service has another slice.
    is_beside: bool,
}

const ODD: [(Odd, &str); 4] = [
    (odd(true, true), "host names, beside a slice of addresses"),
    (odd(true, false), "host names alone"),
    (odd(false, true), "null ports, beside a slice with ports"),
    (odd(false, false), "null ports alone"),
];

const fn odd(is_of_host_names: bool, is_beside: bool) -> Odd {
    Odd {
        is_of_host_names,
        is_beside,
    }
}

struct Staged {
    point: Point<Odd>,
    service: Service,
    good: Slice,
    odd: Slice,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with a slice, and without");
    let namespace = cx.namespace().await?;
    let names = ["b", "added", "trap"];
    let backends = frontends::serving(cx, &namespace, &names, &[TARGET, PORT], &[TARGET, PORT]).await?;
    let (b, added, trap) = (&backends[0], &backends[1], &backends[2]);
    let (mut all, mut direct) = (Vec::new(), Vec::new());
    for point in points(cx, &ODD) {
        direct.extend(themselves(&point.axis(), point.family, &[(trap, TARGET)])?);
        all.push(stage(cx, point, b).await?);
    }
    let meets = |by: &[(&Backend, u16)]| {
        let of = |staged: &Staged| {
            staged
                .service
                .meets(cx, PORT, if staged.is_beside() { by } else { &[] })
        };
        all.iter()
            .map(of)
            .collect::<Result<Vec<_>, Halt>>()
            .map(Dialled::all)
    };
    let before = meets(&[(b, TARGET)])?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let what = "the trap answers without the Service";
    probing::control(cx, what, &cx.clients()[..1], &direct, within).await?;
    before
        .control(cx, "a Service serves what its slice lists, or nothing", within)
        .await?;
    let running = agents::all(cx).await?;

    cx.phase("verdict: odd slices appear, and nothing changes for the hold time");
    let window = before.window(cx).await?;
    for Staged { point, odd, .. } in &all {
        let mut entries = endpoints([trap], point.family)?;
        if point.variant.is_of_host_names {
            entries[0]["addresses"] = json!(["trap.example"]);
        }
        odd.create(cx, entries).await?;
    }
    fence::pass(cx).await?;
    window.hold(cx).await?;

    cx.phase("verdict: a later change of the other slice is in force");
    for Staged { point, good, .. } in all.iter().filter(|staged| staged.is_beside()) {
        good.list(cx, endpoints([b, added], point.family)?).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    meets(&[(b, TARGET), (added, TARGET)])?
        .judge_briefly(cx, within)
        .await?;
    let restarted = agents::restarted_since(cx, running.as_ref()).await?;
    for Staged { point, .. } in all.iter().filter(|_| !restarted.is_empty()) {
        cx.axes().judged(&point.axis(), vec![ended(&restarted)]);
    }
    Ok(())
}

async fn stage(cx: &Context, point: Point<Odd>, b: &Backend) -> Result<Staged, Halt> {
    let family = point.family;
    let namespace = cx.namespace().await?;
    let service = Service::create(cx, &point.axis(), &namespace, "s", family, &Port::both(WEB, PORT)).await?;
    let [good, odd] = ["s-good", "s-odd"].map(|name| service.slice(name, &Port::both(WEB, TARGET)));
    if point.variant.is_beside {
        good.create(cx, endpoints([b], family)?).await?;
    }
    let odd = if point.variant.is_of_host_names {
        odd.of_host_names()
    } else {
        odd.without_ports()
    };
    Ok(Staged {
        point,
        service,
        good,
        odd,
    })
}

impl Staged {
    fn is_beside(&self) -> bool {
        self.point.variant.is_beside
    }
}

fn ended(restarted: &[String]) -> Finding {
    Finding {
        weight: Weight::Violation,
        subject: "agents".to_owned(),
        expected: "none started again after an odd slice appeared".to_owned(),
        found: restarted.join(", "),
        first: Vec::new(),
        counted: None,
    }
}
