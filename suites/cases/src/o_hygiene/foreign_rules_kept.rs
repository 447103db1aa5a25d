//! `foreign-rules-kept`: tables of nftables with unusual types of sets, chains of iptables, ipsets, and routes with
//! their rules, all of another owner, are byte for byte what they were, apart from counters, after the agent's
//! installation, its restart, changes of Services, and its uninstall. Services are served while they are there.
//!
//! They are made while no agent is on the node, so that each of its starts and syncs meets them. They match addresses
//! for documentation alone, which no packet of a case has. Each kind is an axis, and so is each family of the Services.
use std::time::Duration;

use cluster::{Capability, Stop};
use faults::StoppedAgent;
use harness::{
    agents::{self, Killed},
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence,
    foreign_rules::ForeignRules,
    frontends,
    pods::Backend,
    sliced_service::{Seen, SlicedService, all_in},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};

use super::{TARGET, values};

pub(crate) const CASE: Case = Case {
    id: "foreign-rules-kept",
    area: super::AREA,
    claims: &["foreign-rules-kept"],
    sentence: "rules, sets and routes of another owner neither disturb the agent nor are changed by it",
    tier: Tier::Hygiene,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentCleanup],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services are served");
    let node = cx.nodes()[0].clone();
    let namespace = cx.namespace().await?;
    let target = cx.port(TARGET);
    let backends = frontends::serving_on(cx, &namespace, &[("b", &*node)], &[target], &[target]).await?;
    let canaries = create(cx, &namespace, ("canary", target), &backends).await?;
    fence::pass(cx).await?;
    let within = Within::from_now(cx.limits().service);
    let served = at_node(cx, &node, &canaries, Seen::All(&backends))?;
    served.control(cx, "the Services are served", within).await?;

    cx.phase("fault: the agent is uninstalled, and another owner makes rules");
    let before = cx.cluster().agents()?.state(&node).await?;
    let agent = StoppedAgent::stop(cx.faults(), &node, Stop::Term).await?;
    cx.cluster().agents()?.clean_up(&node).await?;
    let foreign = ForeignRules::make(cx, &node, cx.limits().longest(CASE.longest)).await?;

    cx.phase("verdict: the agent is installed");
    agent.start().await?;
    let within = Within::from_now(cx.limits().heal);
    agents::ready(cx, &node, &before, within).await?;
    served.judge_briefly(cx, within).await?;
    foreign.judge(cx, "the agent's installation").await?;

    cx.phase("verdict: the agent is killed and starts, and Services change");
    let killed = Killed::kill(cx, std::slice::from_ref(&node)).await?;
    killed.start(cx).await?;
    let within = Within::from_now(cx.limits().heal);
    served.judge_briefly(cx, within).await?;
    for canary in &canaries {
        canary.list(cx, []).await?;
    }
    let further = create(cx, &namespace, ("further", target), &backends).await?;
    let emptied = at_node(cx, &node, &canaries, Seen::Nothing)?;
    let served = at_node(cx, &node, &further, Seen::All(&backends))?;
    let changed = [emptied, served];
    let changed = changed.iter().flat_map(|one| one.groups().to_vec());
    let changed: Vantages = changed.collect();
    let within = Within::from_now(cx.limits().service);
    changed.judge_briefly(cx, within).await?;
    foreign.judge(cx, "its restart, and changes of Services").await?;

    cx.phase("verdict: the agent is uninstalled");
    let before = cx.cluster().agents()?.state(&node).await?;
    let agent = StoppedAgent::stop(cx.faults(), &node, Stop::Term).await?;
    cx.cluster().agents()?.clean_up(&node).await?;
    foreign.judge(cx, "its uninstall").await?;

    cx.phase("heal");
    agent.start().await?;
    foreign.end(cx).await?;
    let within = Within::from_now(cx.limits().heal);
    agents::ready(cx, &node, &before, within).await?;
    changed.judge_briefly(cx, within).await
}

/// Creates a Service of each family, whose name begins so.
async fn create(
    cx: &Context,
    namespace: &str,
    (name, target): (&str, u16),
    backends: &[Backend],
) -> Result<Vec<SlicedService>, Halt> {
    let mut services = Vec::new();
    for family in cx.families() {
        let axis = format!("{family}, served beside them");
        let values = values(namespace, name, family, target);
        let listed = all_in(backends, Condition::Ready);
        services.push(SlicedService::create(cx, &axis, family, values, listed).await?);
    }
    Ok(services)
}

/// What is dialled at the node.
fn at_node(cx: &Context, node: &str, services: &[SlicedService], seen: Seen<'_>) -> Result<Vantages, Halt> {
    let mut all = Vec::new();
    for service in services {
        all.extend(service.at_node(cx, node, seen)?);
    }
    Ok(all.into_iter().collect())
}
