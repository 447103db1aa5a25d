//! Datagrams that are too large for one packet: do they arrive whole, and where do their fragments come from?

use cluster::Place;
use futures::future::try_join_all;
use oracle::{
    check::Observed,
    fragments::{Datagrams, datagrams, translated_at_sockets},
    history::Round,
    peer::{Shows, peers},
};

use crate::{
    context::Context,
    destination::Destination,
    lasting_sockets::{Keeper, Sockets, Which, round},
    verdict::Halt,
};

/// Verdict: of N datagrams of so many bytes from each client, whose fragments go out in this order (none: the kernel cuts
/// them up), and of as large answers no more than 1 of [`Limits::lost_of`](crate::limits::Limits::lost_of) is lost and none is
/// damaged. Unconnected sockets see answers from the address that they dialled. Fragments of answers come from where those of
/// requests went: on hosts, whose devices show packets of others and those that are still to be translated, they are not checked.
///
/// # Errors
/// If a client ends, or may not send or see packets as they are.
pub async fn judge(
    cx: &Context,
    sockets: &mut Sockets,
    target: &Destination,
    bytes: u16,
    order: &[u8],
) -> Result<(), Halt> {
    let probes = target.probes(cx.limits());
    let all = Which::Oldest(u32::try_from(probes).unwrap_or(u32::MAX));
    let of = |keeper: &Keeper| Round {
        fragments: order.to_vec(),
        bytes,
        watched: is_watched(keeper),
        ..round(cx, target, all)
    };
    let made = sockets.keepers().iter_mut().map(|one| {
        let round = of(one);
        async move { one.make(&round).await }
    });
    let attempts = try_join_all(made).await?.concat();
    let logs = cx
        .logs()
        .in_the_end(std::slice::from_ref(target), &attempts)
        .await?;
    let observed = Observed::new(&attempts, &logs, cx.limits().times());
    let mut findings = Vec::new();
    for keeper in sockets.keepers() {
        let expected = Datagrams {
            stream: target.stream(keeper.client()),
            at_least: probes,
            identities: target.permitted.identities().cloned().unwrap_or_default(),
            lost_of: cx.limits().lost_of,
            watched: is_watched(keeper),
            reordered: !order.is_sorted(),
        };
        findings.extend(datagrams(&observed, &expected));
        findings.extend(peers(&observed, &expected.stream, Shows::FrontendOrBackend, 0));
    }
    cx.axes().judged(&target.axis, findings);
    let elsewhere = translated_at_sockets(&attempts);
    let name = format!(
        "{}: requests that left their sockets for a backend",
        target.label()
    );
    cx.record(&name, format!("{elsewhere} of {}", attempts.len()));
    Ok(())
}

fn is_watched(keeper: &Keeper) -> bool {
    !matches!(keeper.client().place, Place::Host { .. })
}
