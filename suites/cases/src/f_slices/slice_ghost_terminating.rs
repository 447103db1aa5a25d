//! `slice-ghost-terminating`: a terminating entry that does not serve any more and a ready entry have the same address,
//! each with another pod as `targetRef`, in one slice or in two. The ready one is served without a failed connection,
//! whichever of the two came first, when the other is written again and when it is removed.
//!
//! The address of a pod that is long in terminating is given to another one while its entry is still there. Of two
//! entries of one pod the newer slice would be right, which is no claim.
use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    objects::annotation,
    pods::Backend,
    slices::{Port, Service, Slice, entry, of_pod},
    verdict::Halt,
    waiting::Within,
};
use serde_json::{Value, json};

use super::{PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-ghost-terminating"],
    "a ready endpoint is served although a terminating one of another pod has the same address",
    |cx| Box::pin(run(cx)),
);

#[derive(Clone, Copy, Debug)]
struct Ghost {
    /// In how many slices the two entries are.
    slices: usize,
    is_first: bool,
    is_written_again: bool,
}

const GHOSTS: [(Ghost, &str); 5] = [
    (ghost(1, true, false), "one slice, the terminating entry first"),
    (ghost(1, false, false), "one slice, the terminating entry last"),
    (ghost(2, true, false), "two slices, the terminating entry first"),
    (ghost(2, false, false), "two slices, the terminating entry last"),
    (
        ghost(2, true, true),
        "two slices, the terminating entry first and written again",
    ),
];

const fn ghost(slices: usize, is_first: bool, is_written_again: bool) -> Ghost {
    Ghost {
        slices,
        is_first,
        is_written_again,
    }
}

/// A slice with the terminating entry, and what it lists when that is gone.
struct Staged {
    ghost: Ghost,
    slice: Slice,
    afterwards: Value,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a terminating and a ready entry with one address");
    let namespace = cx.namespace().await?;
    let b = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET])
        .await?
        .remove(0);
    let (mut staged, mut served) = (Vec::new(), Vec::new());
    for point in points(cx, &GHOSTS) {
        let (slice, dialled) = stage(cx, &point, &b).await?;
        staged.push(slice);
        served.push(dialled);
    }
    let served = Dialled::all(served);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: the ready entry is served");
    served.judge_briefly(cx, within).await?;

    cx.phase("verdict: also when the terminating entry is written again, and when it is removed");
    let window = served.window(cx).await?;
    for Staged { slice, .. } in staged.iter().filter(|staged| staged.ghost.is_written_again) {
        cx.objects()
            .patch(slice.key(), annotation("plumbline-written", "again"))
            .await?;
    }
    fence::pass(cx).await?;
    for Staged {
        slice, afterwards, ..
    } in &staged
    {
        slice.list(cx, afterwards.clone()).await?;
    }
    fence::pass(cx).await?;
    window.hold(cx).await?;
    Ok(())
}

async fn stage(cx: &Context, point: &Point<Ghost>, b: &Backend) -> Result<(Staged, Dialled), Halt> {
    let (family, ghost) = (point.family, point.variant);
    let namespace = cx.namespace().await?;
    let service = Service::create(cx, &point.axis(), &namespace, "s", family, &Port::both(WEB, PORT)).await?;
    let ready = of_pod(b.endpoint(family, true)?, &namespace, "ready");
    let conditions = json!({ "ready": false, "serving": false, "terminating": true });
    let terminating = of_pod(entry(b, family, conditions)?, &namespace, "terminating");
    let slice = |name: &str| service.slice(name, &Port::both(WEB, TARGET));
    let staged = |slice, afterwards| Staged {
        ghost,
        slice,
        afterwards,
    };
    let mut entries = [ready.clone(), terminating];
    if ghost.is_first {
        entries.reverse();
    }
    let served = service.meets(cx, PORT, &[(b, TARGET)])?;
    if ghost.slices == 1 {
        let slice = slice("s");
        slice.create(cx, json!(entries)).await?;
        return Ok((staged(slice, json!([ready])), served));
    }
    let slices = ["s-0", "s-1"].map(slice);
    for (slice, entry) in slices.iter().zip(entries) {
        slice.create(cx, json!([entry])).await?;
    }
    let [first, second] = slices;
    let slice = if ghost.is_first { first } else { second };
    Ok((staged(slice, json!([])), served))
}
