//! `uninstall-leaves-nothing`: after the documented uninstall no program, link, map, pin or rule of the implementation
//! is left, and no program translates a Service's VIP.
//!
//! The backend stays alive, so that a translation would show. The baseline is what the node had before its agent was
//! installed: nothing in a lab, what runtime and network have created on others. Devices and routes are not compared.
use std::time::Duration;

use cluster::{Capability, Stop};
use faults::{FaultError, Remains, StoppedAgent};
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::{Within, eventually},
};
use oracle::finding::{Finding, Weight};

use super::local_service::Served;

pub(crate) const CASE: Case = Case {
    id: "uninstall-leaves-nothing",
    area: super::AREA,
    claims: &["uninstall-leaves-nothing"],
    sentence: "after its uninstall nothing of the implementation is left on a node, and no Service address is translated",
    tier: Tier::Hygiene,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Baseline, Capability::AgentCleanup],
        target: &[OfTarget::CountableBeyondBaseline],
    },
    disruptive: true,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const AXIS: &str = "uninstall";
/// How long removed objects may take to disappear.
const LATE: Duration = Duration::from_secs(60);

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    let here = cx.clients().on(node);
    cx.phase("a Service is served");
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
    let before = Remains::before(cx.cluster(), node).await?;
    cx.record("before", before.to_string());
    let now = async || Ok::<_, FaultError>(Remains::of(cx.cluster(), node).await?.beyond(&before));
    let installed = now().await?;
    cx.record("installed", installed.to_string());
    if installed.is_empty() {
        return Err(Halt::Inconclusive(
            "the implementation has nothing on the node any more that could be counted".to_owned(),
        ));
    }

    cx.phase("the agent is stopped and removed");
    let agent_before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
    cx.cluster().agents()?.clean_up(node).await?;
    cx.fault(&format!("agent of {node} stopped, its own clean-up done"));
    let within = Within::from_now(LATE);
    let nothing = eventually("nothing is left", within, async || {
        Ok(now().await?.is_empty().then_some(()))
    });
    let findings = match nothing.await {
        Ok(()) => Vec::new(),
        Err(Halt::Inconclusive(_)) => {
            let left = now().await?;
            vec![Finding {
                weight: Weight::Violation,
                subject: format!("{node} after the removal"),
                expected: "nothing beyond what was there before".to_owned(),
                found: left.to_string(),
                first: Vec::new(),
                counted: None,
            }]
        }
        Err(halt) => return Err(halt),
    };
    cx.axes().judged(AXIS, findings);

    cx.phase("verdict: the VIP is no longer translated, its backend lives");
    probing::judge(
        cx,
        &here,
        &served.reaching_no_backend(),
        Within::from_now(cx.limits().service),
    )
    .await?;

    cx.phase("heal");
    agent.start().await?;
    let started = Within::from_now(cx.limits().heal);
    if agents::ready(cx, node, &agent_before, started).await?.is_none() {
        cx.record("installed again", format!("not ready within {:?}", started.limit));
    }
    probing::judge_briefly(cx, cx.clients(), &served.targets, started).await
}
