//! `stale-sock-disabled-by-config`: translation at sockets is switched off in the configuration, and the agent is
//! killed and started again. Packet programs serve the VIP, and the trap gets nothing.
//!
//! Backends change after the switch: a leftover with correct data would not show. A program on a hook that did not
//! exist before the kill shows that the switch had no effect: then the case is inconclusive. A target without a switch
//! is not supported. Both families share one restart.
use std::time::Duration;

use cluster::{Stop, Variant};
use faults::{Attached, HeldProgram, LeftoverPrograms, StoppedAgent};
use harness::{
    agents, background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence, probing,
    recovery::{Recovering, Started},
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
};

use super::{
    generations::{CONNECT, LONGEST, SENDMSG},
    shared_vips::{Shop, hooks},
};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-disabled-by-config",
    area: super::AREA,
    claims: &["stale-sock-disabled-by-config"],
    sentence: "after translation at sockets was switched off, no socket program sends a client to a former backend",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[
            OfTarget::Variant(Variant::SocketLbOff),
            OfTarget::ProgramsAtOneOf(&[CONNECT, SENDMSG]),
        ],
    },
    disruptive: true,
    manifest: include_str!("generations.yaml"),
    longest: Duration::from_secs(480),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase("translation at sockets is on, each VIP serves the old backend");
    let shops = Shop::stage(cx, node).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let by_old: Vec<Destination> = shops.iter().flat_map(Shop::by_old).collect();
    probing::control(
        cx,
        "each VIP serves the old backend",
        cx.clients(),
        &by_old,
        within,
    )
    .await?;
    let hooks = hooks(cx);
    let mut held = LeftoverPrograms::hold(cx.cluster(), node, &hooks, cx.limits().longest(LONGEST)).await?;
    if held.held().is_empty() {
        return Err(Halt::Inconclusive(
            "no program is attached at the sockets of the agent's cgroup any more".to_owned(),
        ));
    }
    let before_kill = held.list().await?;
    cx.fault(&format!("at sockets of {node}: {:?}", held.held()));

    cx.phase("the agent is killed, and started with translation at sockets switched off");
    let mut recovery = Recovering::begin(cx, node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    let switching = agent.start_as(Variant::SocketLbOff);
    let (switched, Started { healing, .. }) = recovery.start(cx, switching).await?;
    cx.fault(&format!(
        "agent of {node} killed, and started as {:?}",
        Variant::SocketLbOff
    ));
    let list = held.list().await?;
    is_off(held.held(), &before_kill, &list)?;
    // Nothing has been written yet: serving `b_old` is right, by any program.
    probing::control(
        cx,
        "each VIP still serves the old backend, through the new agent",
        cx.clients(),
        &by_old,
        healing,
    )
    .await?;

    cx.phase("verdict: the backends change, the VIPs serve exactly the EndpointSlices, the old backends get nothing");
    let mut since = healing;
    for shop in &shops {
        since = Within::from(shop.replace(cx).await?, cx.limits().endpoints);
    }
    let current: Vec<Destination> = shops.iter().flat_map(Shop::by_new).collect();
    let judged = probing::judge(cx, cx.clients(), &current, since).await?;
    fence::pass(cx).await?;
    let hold = cx.limits().hold;
    let after = background::hold_steadily(cx, cx.clients(), &current, hold).await?;
    let attempts = [judged, after].concat();
    for shop in &shops {
        probing::trap_untouched(cx, shop.axis(), &attempts, &shop.old).await?;
    }
    let list = held.list().await?;
    cx.record(
        "programs at the sockets without translation there",
        format!("{list:?}"),
    );
    is_off(held.held(), &before_kill, &list)?;
    let axes: Vec<&str> = shops.iter().map(Shop::axis).collect();
    recovery.end(cx, &axes).await?;
    held.heal().await?;

    cx.phase("heal: translation at sockets is on again");
    let before = cx.cluster().agents()?.state(node).await?;
    switched.heal().await?;
    cx.fault(&format!("healed: the agent of {node} has its own configuration"));
    let started = Within::from_now(cx.limits().heal);
    if agents::ready(cx, node, &before, started).await?.is_none() {
        cx.record(
            "switched on again",
            format!("not ready within {:?}", started.limit),
        );
    }
    probing::judge_briefly(cx, cx.clients(), &current, started).await
}

/// Inconclusive if a program runs at a hook that is neither held nor existed before the agent was killed: an agent that
/// does not translate at sockets attaches none.
fn is_off(held: &[HeldProgram], before: &[Attached], now: &[Attached]) -> Result<(), Halt> {
    let was_there = |hook: &str, id: &u32| {
        held.iter().any(|program| program.id == *id)
            || before
                .iter()
                .any(|attached| attached.hook == hook && attached.effective.contains(id))
    };
    for Attached { hook, effective, .. } in now {
        if let Some(id) = effective.iter().find(|id| !was_there(hook, id)) {
            return Err(Halt::Inconclusive(format!(
                "translation at sockets was not switched off: program {id} came to {hook} after the agent was killed"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hook: &str, effective: &[u32]) -> Attached {
        Attached {
            hook: hook.to_owned(),
            effective: effective.to_vec(),
            direct: Vec::new(),
        }
    }

    #[test]
    fn a_program_that_came_after_the_kill_shows_that_sockets_are_not_off() {
        let held = [HeldProgram {
            hook: "connect4".to_owned(),
            id: 3,
            name: "earlier".to_owned(),
            maps: Vec::new(),
        }];
        let before = [at("connect4", &[3, 9]), at("connect6", &[])];
        for now in [&[][..], &[3], &[9, 3]] {
            assert!(is_off(&held, &before, &[at("connect4", now)]).is_ok(), "{now:?}");
        }
        for now in [at("connect4", &[3, 4]), at("connect6", &[9])] {
            let halt = is_off(&held, &before, std::slice::from_ref(&now));
            assert!(matches!(halt, Err(Halt::Inconclusive(_))), "{now:?}");
        }
    }
}
