//! `unready-no-new`: of three endpoints one turns unready, or is removed. From the endpoint propagation limit on it
//! gets no new connection, and no connection fails before or after, since its backend serves all the while. How long it
//! still got some is reported, from the write of the EndpointSlice on.
use std::{collections::BTreeMap, time::Duration};

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    history::now_us,
    pods::Backend,
    sliced_service::{Seen, SlicedService, all_in, everywhere},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::{Attempt, Outcome, Transport};

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "unready-no-new",
    area: super::AREA,
    claims: &["unready-no-new"],
    sentence: "an endpoint that turns unready or is removed gets no new connection, and no connection fails meanwhile",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// What becomes of the endpoint in its EndpointSlice; `None`: it is removed.
const SHAPES: [(&str, Option<Condition>); 2] = [("unready", Some(Condition::Unready)), ("removed", None)];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with three endpoints");
    let namespace = cx.namespace().await?;
    let names = ["leaving", "b1", "b2"];
    let all = frontends::serving(cx, &namespace, &names, &TARGETS, &TARGETS).await?;
    let (leaving, others) = all.split_at(1);
    let values = |shape: &str, family, target| values(&namespace, shape, family, target);
    let services = SlicedService::create_shapes(cx, &SHAPES, &TARGETS, &all, values).await?;
    let seen = |seen| everywhere(cx, services.iter().map(|(service, _)| service), seen);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let control = seen(Seen::All(&all))?;
    control.control(cx, "all three serve", within).await?;

    cx.phase("fault: one of them turns unready, or is removed");
    // Of TCP: a datagram may be on its way when its flow ends, and what becomes of flows is another claim.
    let any = seen(Seen::OneOf(&all))?.only(Transport::Tcp);
    let any = any.start(cx, cx.limits().hold).await?;
    let written_us = now_us();
    for (service, becomes) in &services {
        let ready = all_in(others, Condition::Ready);
        let left = becomes.map(|condition| (&leaving[0], condition));
        service.list(cx, left.into_iter().chain(ready)).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: the others serve, for the hold time, and no connection has failed");
    let exact = seen(Seen::All(others))?;
    let judged = exact.judge(cx, within).await?;
    let held = exact.steadily(cx, cx.limits().hold).await?;
    let (any, held) = futures::try_join!(any.hold(cx), held.hold(cx))?;
    record_delays(cx, &leaving[0], written_us, &[any, judged, held].concat());
    Ok(())
}

/// Records for how long after the write clients still reached the endpoint that left: the median of all, and the
/// longest.
fn record_delays(cx: &Context, leaving: &Backend, written_us: u64, attempts: &[Attempt]) {
    let mut last = BTreeMap::new();
    for attempt in attempts {
        let delay = last
            .entry((&attempt.client, &attempt.target, attempt.transport))
            .or_insert(0);
        if let Outcome::Answered { answer, .. } = &attempt.outcome
            && answer.identity.split('/').next() == Some(&*leaving.server())
        {
            *delay = attempt.start_us.saturating_sub(written_us).max(*delay);
        }
    }
    let mut delays: Vec<u64> = last.into_values().collect();
    delays.sort_unstable();
    let milliseconds = |at: usize| delays.get(at).map_or(0, |delay| delay / 1000);
    let (median, longest) = (
        milliseconds(delays.len() / 2),
        milliseconds(delays.len().saturating_sub(1)),
    );
    cx.record(
        "the endpoint was last reached after",
        format!("{median} ms in the median, {longest} ms at most"),
    );
}
