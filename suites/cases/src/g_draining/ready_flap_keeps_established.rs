//! `ready-flap-keeps-established`: an endpoint turns unready and ready again five times, and the TCP connections to it
//! stay up and are answered all the while, from pods and hosts through the ClusterIP and from outside through node
//! ports of both nodes.
//!
//! It turns unready in the EndpointSlice alone. All connections were opened while it was the only endpoint, so all are
//! to it; in one run it stays the only one, in the other there is a ready one, where the others would go.
use std::time::{Duration, Instant};

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    pods::Backend,
    sliced_service::{Seen, SlicedService, all_in, everywhere},
    vantages::Vantages,
    verdict::Halt,
    waiting::{Within, has_lasted},
    write_effect::Effect,
};
use oracle::history::Transport;

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "ready-flap-keeps-established",
    area: super::AREA,
    claims: &["ready-flap-keeps-established"],
    sentence: "connections to an endpoint survive while it turns unready and ready again, five times",
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
    longest: Duration::from_secs(400),
    takes_at_least: Duration::from_secs(50),
    run: |cx| Box::pin(run(cx)),
};

/// How often it turns unready, and for how long it is so, and ready again.
const TIMES: usize = 5;
const LASTS: Duration = Duration::from_secs(5);
/// Connections of each client to each frontend.
const EACH: u32 = 1;

/// Whether another endpoint is ready meanwhile.
const SHAPES: [(&str, bool); 2] = [("alone", false), ("beside a ready one", true)];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with one endpoint");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["flapping", "steady"], &TARGETS, &TARGETS).await?;
    let (flapping, steady) = all.split_at(1);
    let values = |shape: &str, family, target| values(&namespace, shape, family, target);
    let services = SlicedService::create_shapes(cx, &SHAPES, &TARGETS, flapping, values).await?;
    let beside = |has_another| if has_another { steady } else { &steady[..0] };
    let services: Vec<(SlicedService, &[Backend])> = services
        .into_iter()
        .map(|(service, has_another)| (service, beside(has_another)))
        .collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let before = everywhere(
        cx,
        services.iter().map(|(service, _)| service),
        Seen::All(flapping),
    )?;
    before.control(cx, "the endpoint serves", within).await?;
    let flows = before.only(Transport::Tcp).flows(cx, EACH, within).await?;

    for time in 1..=TIMES {
        cx.phase(&format!("fault: it turns unready, the {time}. time"));
        list(cx, &services, flapping, Condition::Unready).await?;
        let since = Instant::now();
        fence::pass(cx).await?;
        // New connections show that it is met. It may fail by its own claim, and does not decide this one.
        let within = Within::from(since, cx.limits().endpoints);
        let what = "the unready endpoint gets no new connection";
        for (effect, seen) in unready(cx, &services)? {
            seen.takes_effect(cx, effect, what, within).await?;
        }
        has_lasted(since, LASTS).await;
        list(cx, &services, flapping, Condition::Ready).await?;
        let since = Instant::now();
        fence::pass(cx).await?;
        has_lasted(since, LASTS).await;
    }

    cx.phase("verdict: all connections are up, and were answered all the while");
    flows.hold(cx, Duration::ZERO).await?;
    Ok(())
}

/// Lists the endpoint in this condition, with those that are ready beside it.
async fn list(
    cx: &Context,
    services: &[(SlicedService, &[Backend])],
    flapping: &[Backend],
    condition: Condition,
) -> Result<(), Halt> {
    for (service, beside) in services {
        let ready = all_in(beside, Condition::Ready);
        service.list(cx, all_in(flapping, condition).chain(ready)).await?;
    }
    Ok(())
}

/// What new connections meet meanwhile, and which claim says so.
fn unready(cx: &Context, services: &[(SlicedService, &[Backend])]) -> Result<[(Effect, Vantages); 2], Halt> {
    let (mut emptied, mut left) = (Vec::new(), Vec::new());
    for (service, beside) in services {
        let seen = |seen| service.dialled(cx, cx.clients().to_vec(), &cx.nodes(), seen);
        match beside {
            [] => emptied.extend(seen(Seen::Nothing)?),
            beside => left.extend(seen(Seen::All(beside))?),
        }
    }
    let all = |dialled: Vec<_>| dialled.into_iter().collect();
    Ok([(Effect::Emptied, all(emptied)), (Effect::Left, all(left))])
}
