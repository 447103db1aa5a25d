//! `release-culprit-refilled`: the culprit's EndpointSlice is emptied, and refilled after 0.1, 1 and 12 s. The culprit
//! serves its backends within the endpoint propagation limit after the refill, and the victim never fails. With a
//! second backend in both EndpointSlices, the shared one gets 35–65 % of 400 probes in each.
//!
//! The suite's own watch shows every empty version before the refill is written. An agent's watch may miss that of 0.1
//! s, so that the culprit is refused in between is recorded and not required. The shares show a doubled entry.
use std::time::{Duration, Instant};

use futures::{future::try_join_all, try_join};
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    probing,
    verdict::Halt,
    waiting::{Within, has_lasted},
};

use super::{
    holders::{Hold, Holder, all_serve, probed, trigger, undisturbed},
    pairs::{Pair, pairs, victims},
};

pub(crate) const CASE: Case = Case {
    id: "release-culprit-refilled",
    area: super::AREA,
    claims: &["release-culprit-refilled"],
    sentence: "a Service that is emptied and refilled serves again, and one of whose name its own is a prefix never fails",
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
    manifest: include_str!("release_culprit_refilled.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// From the emptying to the refill.
const DELAYS: [(Duration, &str); 3] = [
    (Duration::from_millis(100), "refilled after 0.1 s"),
    (Duration::from_secs(1), "refilled after 1 s"),
    (LONGEST, "refilled after 12 s"),
];
/// Long enough to see the empty culprit refused, which shows that the agent has handled the emptying.
const LONGEST: Duration = Duration::from_secs(12);
/// Of 400 probes and two backends: the other one then has at most 65 %.
const LEAST_SHARE: f64 = 0.35;

async fn run(cx: &Context) -> Result<(), Halt> {
    let delays = cx.axes().choose(DELAYS.to_vec(), |(_, name)| (*name).to_owned());
    let mut pairs = pairs(cx, &delays).await?;
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;

    cx.phase("the culprit is emptied and refilled, and the victim is probed all the time");
    let window = probed(cx, victims(&pairs), Hold::Time).await?;
    for (delay, name) in delays {
        let of_delay = |pair: &&Pair<Duration>| pair.how == delay;
        let refuses: Vec<Destination> = pairs
            .iter()
            .filter(of_delay)
            .map(|pair| pair.culprit.refuses())
            .collect();
        let refills = pairs
            .iter_mut()
            .filter(|pair| pair.how == delay)
            .map(async |pair| {
                // On return it is written, and the suite's own watch has shown it.
                pair.culprit.list(cx, &[]).await?;
                has_lasted(Instant::now(), delay).await;
                pair.culprit.list_again(cx).await
            });
        let met = async {
            if delay == LONGEST {
                // Shorter than the endpoint propagation limit, so an agent may apply it later. The fence that follows
                // shows that it was handled.
                let settled = probing::settle(cx, cx.clients(), &refuses, Within::from_now(delay)).await?;
                cx.record(
                    "the culprit refuses while it is empty, of all axes",
                    settled.words(),
                );
            }
            Ok(())
        };
        try_join!(try_join_all(refills), met)?;
        let refilled = Instant::now();
        let targets: Vec<Destination> = pairs
            .iter()
            .filter(of_delay)
            .flat_map(|pair| pair.culprit.serves())
            .collect();
        cx.phase(&format!("the culprit is {name}, and serves"));
        let within = Within::from(refilled, cx.limits().endpoints);
        probing::judge_briefly(cx, cx.clients(), &targets, within).await?;
    }

    cx.phase("trigger: the victim is patched, and serves for the hold time");
    trigger(cx, "1", victims(&pairs)).await?;
    window.hold(cx).await?;

    cx.phase("both serve, each of two backends its share");
    let (two, others): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.shared.len() == 2);
    let targets: Vec<Destination> = others.iter().flat_map(|pair| pair.culprit.serves()).collect();
    let within = Within::from_now(cx.limits().endpoints);
    probing::judge(cx, cx.clients(), &targets, within).await?;
    let both = two.iter().flat_map(|pair| pair.both());
    let targets: Vec<Destination> = both.flat_map(Holder::serves).collect();
    let mut attempts = Vec::new();
    // N is 200.
    for _ in 0..2 {
        attempts.extend(probing::judge(cx, cx.clients(), &targets, within).await?);
    }
    if cx.axes().has_n("shares of two backends") {
        probing::judge_shares(cx, cx.clients(), &targets, &attempts, LEAST_SHARE);
    }
    undisturbed(cx, victims(&pairs), agents.as_ref()).await
}
