//! `stale-restart-loop-no-growth`: after 10 restarts of the agent by SIGKILL there are no more programs per hook,
//! links, maps and pins than after its first start.
//!
//! Services do not change meanwhile. Replaced objects disappear late: they are counted 60 s after readiness.
use std::time::{Duration, Instant};

use cluster::Stop;
use faults::{Remains, StoppedAgent};
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::{Within, eventually, has_lasted},
};
use oracle::finding::{Finding, Weight};

use super::local_service::Served;

pub(crate) const CASE: Case = Case {
    id: "stale-restart-loop-no-growth",
    area: super::AREA,
    claims: &["stale-restart-loop-no-growth"],
    sentence: "ten restarts of the agent leave as many programs, links, maps and pins as its first start",
    tier: Tier::Hygiene,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[OfTarget::Countable],
    },
    disruptive: true,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: LATE,
    run: |cx| Box::pin(run(cx)),
};

const RESTARTS: usize = 10;
const AXIS: &str = "restarts";
/// How long replaced objects may take to disappear.
const LATE: Duration = Duration::from_secs(60);
/// How long each start lasts of an agent that has not become ready in T_heal once. Ten times T_heal would be longer than
/// the case may take, which would hide what such an agent leaves.
const UNREADY: Duration = Duration::from_secs(10);

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase("a Service is served; the agent starts for the first time");
    let served = Served::stage(cx, AXIS, node).await?;
    let control = Within::from_now(cx.limits().service);
    probing::control(
        cx,
        "the Service is served",
        cx.clients(),
        &served.targets,
        control,
    )
    .await?;
    let mut limit = cx.limits().heal;
    restart(cx, node, &mut limit).await?;
    let control = Within::from_now(cx.limits().heal);
    probing::control(
        cx,
        "served after the first restart",
        cx.clients(),
        &served.targets,
        control,
    )
    .await?;
    // Replaced objects disappear late.
    has_lasted(Instant::now(), LATE).await;
    let first = Remains::of(cx.cluster(), node).await?;
    cx.record("after the first start", first.to_string());
    if first.is_empty() {
        return Err(Halt::Inconclusive(
            "the implementation has nothing on the node any more that could be counted".to_owned(),
        ));
    }

    cx.phase(&format!("{RESTARTS} restarts by SIGKILL"));
    for _ in 0..RESTARTS {
        restart(cx, node, &mut limit).await?;
    }
    let within = Within::from_now(LATE);
    let same = eventually("the numbers are those of the first start", within, || async {
        let now = Remains::of(cx.cluster(), node).await.map_err(Halt::from)?;
        Ok((!now.exceeds(&first)).then_some(()))
    });
    let findings = match same.await {
        Ok(()) => Vec::new(),
        Err(Halt::Inconclusive(_)) => {
            let now = Remains::of(cx.cluster(), node).await?;
            vec![Finding {
                weight: Weight::Violation,
                subject: format!("{node} after {RESTARTS} restarts"),
                expected: format!("at most {first}"),
                found: now.to_string(),
                first: Vec::new(),
                counted: None,
            }]
        }
        Err(halt) => return Err(halt),
    };
    cx.axes().judged(AXIS, findings);
    probing::judge_briefly(
        cx,
        cx.clients(),
        &served.targets,
        Within::from_now(cx.limits().heal),
    )
    .await
}

/// Kills the agent and starts it; returns when it says that it is ready, or after `limit`, which is [`UNREADY`] then.
async fn restart(cx: &Context, node: &str, limit: &mut Duration) -> Result<(), Halt> {
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    agent.start().await?;
    cx.fault(&format!("agent of {node} killed and started"));
    // Leftovers are counted, and packets decide, whatever the agent's readiness.
    let within = Within::from_now(*limit);
    if agents::ready(cx, node, &before, within).await?.is_none() {
        cx.record("started again", format!("not ready within {limit:?}"));
        *limit = UNREADY;
    }
    Ok(())
}
