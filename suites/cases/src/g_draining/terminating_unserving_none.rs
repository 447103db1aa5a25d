//! `terminating-unserving-none`: endpoints that are terminating and not serving get no new connection, even if there
//! are no others: then the Service has none. Beside one that is terminating and serving, that one gets all of them.
//!
//! Their backends stay alive, answering and logging.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    sliced_service::{Seen, SlicedService, all_in, everywhere},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "terminating-unserving-none",
    area: super::AREA,
    claims: &["terminating-unserving-none"],
    sentence: "endpoints that are terminating and not serving get no new connection, even if there are no others",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
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

/// Which endpoints stay beside those that stop serving.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Draining,
}

const SHAPES: [(&str, Beside); 2] = [
    ("alone", Beside::Nothing),
    ("beside a serving one", Beside::Draining),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with three endpoints");
    let namespace = cx.namespace().await?;
    let names = ["draining", "b1", "b2"];
    let all = frontends::serving(cx, &namespace, &names, &TARGETS, &TARGETS).await?;
    let (draining, stopping) = all.split_at(1);
    let values = |shape: &str, family, target| values(&namespace, shape, family, target);
    let services = SlicedService::create_shapes(cx, &SHAPES, &TARGETS, &all, values).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let control = everywhere(cx, services.iter().map(|(service, _)| service), Seen::All(&all))?;
    control.control(cx, "all three serve", within).await?;

    cx.phase("fault: endpoints terminate and serve no more, in the EndpointSlice");
    let mut expected = Vec::new();
    for (service, beside) in &services {
        let stopped = all_in(stopping, Condition::Stopped);
        let (left, seen) = match beside {
            Beside::Nothing => (&draining[..0], Seen::Nothing),
            Beside::Draining => (draining, Seen::All(draining)),
        };
        service
            .list(cx, stopped.chain(all_in(left, Condition::Draining)))
            .await?;
        expected.extend(service.dialled(cx, cx.clients().to_vec(), &cx.nodes(), seen)?);
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: none of them is reached, for the hold time");
    let expected: Vantages = expected.into_iter().collect();
    expected.judge(cx, within).await?;
    expected.steadily(cx, cx.limits().hold).await?.hold(cx).await?;
    Ok(())
}
