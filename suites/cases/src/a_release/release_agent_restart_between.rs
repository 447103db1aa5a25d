//! `release-agent-restart-between`: the agent is killed between release and trigger, and in a second run is down when
//! the release is written. The victim never fails, and serves its backends for the hold time after the agent is ready
//! again.
//!
//! Probes run through the gap, and every node's agent is a new process after it. In the second run no agent sees the
//! release when it is written: the witness, that the culprit is refused, follows after the start.
use std::time::{Duration, Instant};

use harness::{
    agents::Killed,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};

use super::{
    holders::{Hold, all_serve, probed, trigger, undisturbed, witnessed},
    pairs::{Pair, pairs, victims},
};

pub(crate) const CASE: Case = Case {
    id: "release-agent-restart-between",
    area: super::AREA,
    claims: &["release-agent-restart-between"],
    sentence: "a Service keeps its backends when the agent restarts around the release by one whose name is a prefix of its own",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("release_agent_restart_between.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// When the agents are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Down {
    AfterRelease,
    DuringRelease,
}

const RUNS: [(Down, &str); 2] = [
    (Down::AfterRelease, "killed after the release"),
    (Down::DuringRelease, "down during the release"),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    for run in cx.axes().choose(RUNS.to_vec(), |(_, name)| (*name).to_owned()) {
        let mut pairs = pairs(cx, &[run]).await?;
        all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;
        let window = probed(cx, victims(&pairs), Hold::Time).await?;
        let seen: Vec<Destination> = pairs.iter().map(|pair| pair.culprit.refuses()).collect();
        cx.phase(&format!("{}: agents are killed, the culprit is emptied", run.1));
        match run.0 {
            Down::AfterRelease => {
                release(cx, &mut pairs).await?;
                witnessed(cx, (Effect::Emptied, "the culprit refuses"), &seen).await?;
                Killed::kill(cx, &cx.nodes()).await?.start(cx).await?;
            }
            Down::DuringRelease => {
                let killed = Killed::kill(cx, &cx.nodes()).await?;
                release(cx, &mut pairs).await?;
                let started = Instant::now();
                killed.start(cx).await?;
                let within = Within::from(started, cx.limits().heal);
                let what = "the culprit refuses after the start";
                write_effect::takes_effect(cx, Effect::Emptied, what, cx.clients(), &seen, within).await?;
            }
        }
        cx.phase("trigger: the victim is patched, and must serve its backends for the hold time");
        trigger(cx, run.1, victims(&pairs)).await?;
        window.hold(cx).await?;
        // The case itself restarts agents.
        undisturbed(cx, victims(&pairs), None).await?;
    }
    Ok(())
}

async fn release(cx: &Context, pairs: &mut [Pair<Down>]) -> Result<(), Halt> {
    for pair in pairs {
        pair.culprit.list(cx, &[]).await?;
    }
    Ok(())
}
