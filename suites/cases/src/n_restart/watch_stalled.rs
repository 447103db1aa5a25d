//! `watch-stalled`: packets between agents and API servers are dropped silently while endpoints change, and, in a
//! second run, the agents are stopped by SIGSTOP. Within the recovery limit of the release all nodes serve exactly what
//! the API lists.
//!
//! Nothing is reset, so no error tells an agent that its watch is dead; its connection was open when the stall began.
//! That nodes still serve the former endpoint meanwhile is the witness. The claim's 10 and 2 min hold for the long
//! profile, whose hold time they are; in other profiles stalls last as long as theirs.
use std::time::{Duration, Instant};

use cluster::{Capability, Place};
use harness::{
    api_cut::{self, ApiCut},
    case::{Case, Families, Needs, Rights, Tier},
    commands::Lasting,
    context::Context,
    probing,
    verdict::Halt,
    waiting::{Within, has_lasted},
};

use super::outage::Swapped;

pub(crate) const CASE: Case = Case {
    id: "watch-stalled",
    area: super::AREA,
    claims: &["watch-stalled"],
    sentence: "all nodes serve what the API lists after the watches of their agents stalled without an error",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::ApiServers],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// How watches stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    Dropped,
    Stopped,
}

/// With the names of the Services of each.
const RUNS: [(Stall, (&str, &str)); 2] = [
    (Stall::Dropped, ("muted", "packets dropped")),
    (Stall::Stopped, ("frozen", "agents stopped")),
];

/// A stall that goes on.
enum Stalled {
    Dropped(ApiCut),
    Stopped(Vec<Lasting>),
}

async fn run(cx: &Context) -> Result<(), Halt> {
    for (stall, names) in cx.axes().choose(RUNS.to_vec(), |(_, names)| names.1.to_owned()) {
        let services = Swapped::stage(cx, names).await?;
        let servers = api_cut::servers(cx).await?;
        let agents = api_cut::connected(cx, &servers).await?;

        cx.phase("fault: watches stall, and the endpoint is replaced by another");
        let began = Instant::now();
        let stalled = match stall {
            Stall::Dropped => Stalled::Dropped(ApiCut::begin(cx, &agents, &servers, cx.limits().hold).await?),
            Stall::Stopped => Stalled::Stopped(stop(cx, &agents).await?),
        };
        services.list(cx, 1).await?;
        has_lasted(began, cx.limits().hold).await;
        services.are_unchanged(cx).await?;

        cx.phase("verdict: released, all nodes serve what the API lists");
        match stalled {
            Stalled::Dropped(cut) => cut.end(cx).await?,
            Stalled::Stopped(stopped) => {
                for one in stopped {
                    one.end(cx).await?;
                }
            }
        }
        let within = Within::from_now(cx.limits().heal);
        for (clients, targets) in services.dialled(cx, 1).await? {
            probing::judge(cx, &clients, &targets, within).await?;
        }
    }
    Ok(())
}

/// Stops the processes of agents, each until its node continues it.
async fn stop(cx: &Context, agents: &[(String, u32)]) -> Result<Vec<Lasting>, Halt> {
    let mut stopped = Vec::new();
    for (node, process) in agents {
        let place = Place::Host { node: node.clone() };
        let [begin, end] = ["STOP", "CONT"].map(|signal| format!("kill -{signal} {process}"));
        let longest = cx.limits().longest(cx.limits().heal);
        stopped.push(Lasting::begin(cx, &place, [&begin, &end], longest).await?);
    }
    Ok(stopped)
}
