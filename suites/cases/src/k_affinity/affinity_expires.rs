//! `affinity-expires`: after it was silent for twice the affinity timeout of 10 s, a client is not bound any more. Over
//! 21 such pauses it meets another of four backends than before at least once; by chance it would never with a
//! probability below 10⁻¹².
//!
//! The pauses are of several Services side by side. Nothing is sent in them: most implementations renew a binding with
//! each use.
use std::{
    slice::from_ref,
    time::{Duration, Instant},
};

use harness::{
    affinity,
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    sliced_service::{Seen, SlicedService, all_in},
    vantages::Vantages,
    verdict::Halt,
    waiting::{Within, has_lasted},
};

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "affinity-expires",
    area: super::AREA,
    claims: &["affinity-expires"],
    sentence: "a client that was silent for twice the affinity timeout is no longer bound to a backend",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::from_secs(60),
    run: |cx| Box::pin(run(cx)),
};

/// The timeout, and how long clients are silent.
const TIMEOUT: u32 = 10;
const SILENCE: Duration = Duration::from_secs(20);
/// Services of each family, pauses of each, and of these as many as decide.
const SERVICES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const PAUSES: usize = 3;
const DECIDE: usize = 19;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with four endpoints");
    let namespace = cx.namespace().await?;
    let node = cx.nodes().remove(0);
    let placed = ["b1", "b2", "b3", "b4"].map(|name| (name, node.as_str()));
    let all = frontends::serving_on(cx, &namespace, &placed, &TARGETS, &TARGETS).await?;
    let mut dialled = Vec::new();
    for family in cx.families() {
        for service in SERVICES {
            let mut values = values(&namespace, &format!("brief-{service}"), family, TARGETS[0]);
            values["seconds"] = TIMEOUT.into();
            let ready = all_in(&all, Condition::Ready);
            let made = SlicedService::create(cx, &family.to_string(), family, values, ready).await?;
            // At one node from outside: bindings across nodes are no claim.
            let inside = cx.clients().to_vec();
            dialled.extend(made.dialled(cx, inside, from_ref(&node), Seen::OneOf(&all))?);
        }
    }
    let dialled: Vantages = dialled.into_iter().collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    dialled.control(cx, "they serve", within).await?;

    let mut rounds = vec![affinity::burst(cx, &dialled).await?];
    for pause in 1..=PAUSES {
        cx.phase(&format!("pause {pause}: nothing is sent for {SILENCE:?}"));
        has_lasted(Instant::now(), SILENCE).await;
        rounds.push(affinity::burst(cx, &dialled).await?);
    }

    cx.phase("verdict: clients meet other backends after pauses");
    for family in cx.families() {
        affinity::judge_released(cx, &family.to_string(), &dialled, &rounds, DECIDE);
    }
    Ok(())
}
