//! `write-failure-retried`: for a minute one of four writes of an agent to its kernel fails, for want of memory, while
//! Services come, change and go. No VIP is answered by another's backends meanwhile; afterwards all are served as listed,
//! within T_heal, and the node holds as many objects as before.
//!
//! Nothing must be served while writes fail, and no fence is waited for: an agent may write all of a change or nothing.
//! It may also restart, and its writes fail then, too. At least [`ENOUGH`] writes must have failed.
use std::{
    collections::VecDeque,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use cluster::{Capability, Family, LONGEST};
use faults::Remains;
use futures::future;
use harness::{
    agents,
    api_faults::watch_writes,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontend_kinds::{Kind, inside_and_outside},
    frontends, objects_left,
    pods::Backend,
    probing::identities,
    target_needs::OfTarget,
    vantages::Vantages,
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::{check::Permitted, history::Transport};

use super::listed::{Listed, TARGET, through};

pub(crate) const CASE: Case = Case {
    id: "write-failure-retried",
    area: super::AREA,
    claims: &["write-failure-retried"],
    sentence: "after some writes to the kernel have failed, Services are exact again and nothing is left",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::WriteFailures],
        target: &[OfTarget::Countable],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: FAILING,
    run: |cx| Box::pin(run(cx)),
};

const KINDS: [Kind; 2] = [Kind::ClusterIp, Kind::NodePort];
const FAILING: Duration = Duration::from_secs(60);
const ONE_OF: NonZeroU32 = NonZeroU32::new(4).unwrap();
/// Fewer show nothing.
const ENOUGH: u64 = 10;
/// Changes while writes fail, and how many Services that have come are there at once.
const CHANGES: u32 = 240;
const AT_ONCE: usize = 4;
const COUNTED: &str = "what the node holds";

/// A Service that stays, with the two backends that are its own.
struct Lasting<'a> {
    family: Family,
    service: Listed,
    own: &'a [Backend],
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: two Services, whose backends are not each other's");
    let node = cx.nodes()[0].clone();
    let namespace = cx.namespace().await?;
    let backends =
        frontends::serving(cx, &namespace, &["b1", "b2", "b3", "b4"], &[TARGET], &[TARGET]).await?;
    let mut lasting = Vec::new();
    for family in cx.families() {
        for (name, own) in ["one", "other"].into_iter().zip(backends.chunks(2)) {
            let names = (name, "changed meanwhile");
            let service = Listed::create(cx, &namespace, names, family, &KINDS, own).await?;
            lasting.push(Lasting { family, service, own });
        }
    }
    let mut targets = Vec::new();
    for one in &lasting {
        targets.extend(one.service.serves(cx, one.own).await?);
    }
    let exact = seen(cx, &node, targets);
    fence::pass(cx).await?;

    cx.phase("staging: the agent starts so that its writes can fail");
    let before = cx.cluster().agents()?.state(&node).await?;
    let watched = watch_writes(cx, &node, LONGEST).await?;
    let within = Within::from_now(cx.limits().heal);
    agents::ready(cx, &node, &before, within).await?;
    exact.control(cx, "all serve", within).await?;
    let held_before = Remains::with_contents(cx.cluster(), &node).await?;
    cx.record("before", held_before.to_string());

    cx.phase("fault: writes fail while Services come, change and go; none is answered by another's backends");
    let mut apart = Vec::new();
    for one in &lasting {
        let own = [Transport::Tcp, Transport::Udp].map(|transport| identities(one.own, transport, TARGET));
        let own = own.into_iter().flatten().collect();
        let all = seen(cx, &node, one.service.serves(cx, one.own).await?);
        apart.extend_from_slice(all.permitting(&Permitted::ServesOrNone(own)).groups());
    }
    let apart: Vantages = apart.into_iter().collect();
    let apart = apart.start(cx, FAILING).await?;
    cx.cluster().agents()?.fail_writes(&node, Some(ONE_OF)).await?;
    cx.fault(&format!("one of {ONE_OF} writes of the agent of {node} fails"));
    future::try_join(apart.hold(cx), churn(cx, &namespace, &lasting)).await?;
    let failed = cx.cluster().agents()?.fail_writes(&node, None).await?;
    let within = Within::from_now(cx.limits().heal);
    cx.fault(&format!("over: {failed} writes have failed"));
    cx.record("writes that have failed", failed.to_string());
    if failed < ENOUGH {
        return Err(Halt::Inconclusive(format!(
            "not witnessed: {failed} writes of the agent have failed, and {ENOUGH} must"
        )));
    }

    cx.phase("verdict: all are served as listed, and nothing is left");
    exact.judge(cx, within).await?;
    let counts = Within::from(within.since, within.limit + cx.limits().hold);
    let failed = format!("{failed} writes have failed");
    objects_left::judge(cx, COUNTED, (&node, &held_before), counts, &failed).await?;
    watched.heal().await.map(drop)
}

/// Of these targets, those at the node: for clients in pods of it, and outside.
fn seen(cx: &Context, node: &str, targets: Vec<(Kind, Destination)>) -> Vantages {
    let [inside, outside] = inside_and_outside(&through(node, targets));
    let beyond = cx.clients().outside().map(|client| (vec![client], outside));
    [(cx.clients().on(node), inside)]
        .into_iter()
        .chain(beyond)
        .collect()
}

/// Changes, at an even pace. In the end, Services list what they did before, and those that have come are gone.
async fn churn(cx: &Context, namespace: &str, lasting: &[Lasting<'_>]) -> Result<(), Halt> {
    let began = Instant::now();
    let mut come = VecDeque::new();
    let turns = (0..CHANGES).zip(lasting.iter().cycle());
    for (number, one) in turns {
        has_lasted(began, FAILING / CHANGES * number).await;
        let [first, second] = one.own else { break };
        let listed: &[&[Backend]] = &[
            std::slice::from_ref(first),
            &[],
            std::slice::from_ref(second),
            one.own,
        ];
        let turn = number as usize / lasting.len();
        one.service.list(cx, listed[turn % listed.len()]).await?;
        let name = format!("come{number}");
        let names = (&*name, "come meanwhile");
        come.push_back(Listed::create(cx, namespace, names, one.family, &KINDS, one.own).await?);
        if come.len() > AT_ONCE
            && let Some(gone) = come.pop_front()
        {
            gone.delete(cx).await?;
        }
    }
    for one in lasting {
        one.service.list(cx, one.own).await?;
    }
    for gone in come {
        gone.delete(cx).await?;
    }
    has_lasted(began, FAILING).await;
    Ok(())
}
