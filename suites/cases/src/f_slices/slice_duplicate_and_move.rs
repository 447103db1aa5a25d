//! `slice-duplicate-and-move`: an endpoint that two slices list is served; removed from one of them it stays, without a
//! failed connection; removed from both it is not served any more. Moving it (added to the other slice, then removed
//! from the first) fails no connection either.
//!
//! It is the only endpoint of its Service, so that any lapse shows. Beside a second endpoint both are served; the share
//! of the one that is listed twice is recorded.
use std::collections::BTreeMap;

use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    pods::{Backend, endpoints},
    slices::{Port, Service, Slice},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::{Attempt, Outcome};
use serde_json::json;

use super::{PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-duplicate-and-move"],
    "an endpoint in two EndpointSlices is served until it has left both, and moving it fails no connection",
    |cx| Box::pin(run(cx)),
);

/// How the endpoint leaves the first slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Emptied,
    Deleted,
    /// It is in one slice at first, and moves to the other and back.
    Moves,
    /// Another endpoint stays in the slice.
    Beside,
}

const LEAVES: [(Leaves, &str); 4] = [
    (Leaves::Emptied, "in two slices, one emptied"),
    (Leaves::Deleted, "in two slices, one deleted"),
    (Leaves::Moves, "moved and back"),
    (Leaves::Beside, "in two slices, beside another endpoint"),
];
/// So often it moves.
const MOVES: usize = 4;

struct Staged {
    point: Point<Leaves>,
    service: Service,
    slices: [Slice; 2],
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: an endpoint in two slices, or in one of two");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b", "other"], &[TARGET], &[TARGET]).await?;
    let (b, other) = (&backends[0], &backends[1]);
    let mut all = Vec::new();
    for point in points(cx, &LEAVES) {
        all.push(stage(cx, point, b, other).await?);
    }
    let meets = |by: &'static [usize]| {
        let of = |staged: &Staged| {
            let beside = (staged.point.variant == Leaves::Beside).then_some(1);
            let by = by.iter().copied().chain(beside);
            let by: Vec<_> = by.map(|backend| (&backends[backend], TARGET)).collect();
            staged.service.meets(cx, PORT, &by)
        };
        let all = all.iter().map(of).collect::<Result<Vec<_>, Halt>>();
        all.map(Dialled::all)
    };
    let (served, gone) = (meets(&[0])?, meets(&[])?);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    served.judge_briefly(cx, within).await?;

    cx.phase("verdict: it leaves one slice, and moves, and every connection is served");
    let window = served.window(cx).await?;
    for staged in &all {
        let (family, [first, second]) = (staged.point.family, &staged.slices);
        let (none, listed) = (json!([]), endpoints([b], family)?);
        match staged.point.variant {
            Leaves::Emptied => drop(first.list(cx, none).await?),
            Leaves::Beside => drop(first.list(cx, endpoints([other], family)?).await?),
            Leaves::Deleted => drop(first.delete(cx).await?),
            Leaves::Moves => {
                let ways = [[second, first], [first, second]].into_iter().cycle();
                for [to, from] in ways.take(MOVES) {
                    to.list(cx, listed.clone()).await?;
                    from.list(cx, none.clone()).await?;
                }
            }
        }
    }
    fence::pass(cx).await?;
    let attempts = window.hold(cx).await?;
    record_shares(cx, &attempts);

    cx.phase("verdict: it has left both, and is not served for the hold time");
    for staged in &all {
        let [first, second] = &staged.slices;
        let last = if staged.point.variant == Leaves::Moves {
            first
        } else {
            second
        };
        last.list(cx, json!([])).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    gone.judge_briefly(cx, within).await?;
    gone.hold(cx).await?;
    Ok(())
}

async fn stage(cx: &Context, point: Point<Leaves>, b: &Backend, other: &Backend) -> Result<Staged, Halt> {
    let family = point.family;
    let namespace = cx.namespace().await?;
    let service = Service::create(cx, &point.axis(), &namespace, "s", family, &Port::both(WEB, PORT)).await?;
    let slices = ["s-0", "s-1"].map(|name| service.slice(name, &Port::both(WEB, TARGET)));
    let [first, second] = match point.variant {
        Leaves::Emptied | Leaves::Deleted => [endpoints([b], family)?, endpoints([b], family)?],
        Leaves::Moves => [endpoints([b], family)?, json!([])],
        Leaves::Beside => [endpoints([b, other], family)?, endpoints([b], family)?],
    };
    slices[0].create(cx, first).await?;
    slices[1].create(cx, second).await?;
    Ok(Staged {
        point,
        service,
        slices,
    })
}

/// How the answers of Services with two endpoints are shared.
fn record_shares(cx: &Context, attempts: &[Attempt]) {
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    let beside = LEAVES[3].1;
    for attempt in attempts.iter().filter(|attempt| attempt.target.contains(beside)) {
        if let Outcome::Answered { answer, .. } = &attempt.outcome {
            let server = answer.identity.split('.').next().unwrap_or_default();
            *answers.entry(server.to_owned()).or_default() += 1;
        }
    }
    cx.record(
        "answers of an endpoint in two slices (b), and of one in one (other)",
        format!("{answers:?}"),
    );
}
