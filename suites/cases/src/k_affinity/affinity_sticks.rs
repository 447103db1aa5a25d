//! `affinity-sticks`: with session affinity all connections of one client reach one backend for a minute: from pods and
//! hosts through the ClusterIP, from outside through the node port of the node that has the backends. Switched off,
//! they spread over all three; switched on again, they stick again.
//!
//! Policy `Local` and one node from outside: bindings across nodes are no claim.
use std::{slice::from_ref, time::Duration};

use harness::{
    affinity,
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    sliced_service::{Seen, SlicedService, all_in},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};
use serde_json::{Value, json};

use super::{SECONDS, TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "affinity-sticks",
    area: super::AREA,
    claims: &["affinity-sticks"],
    sentence: "with ClientIP affinity the connections of one client reach one backend, and they spread again without it",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: WINDOW,
    run: |cx| Box::pin(run(cx)),
};

/// Connections of a client that decide, and over which time.
const CONNECTIONS: usize = 100;
const WINDOW: Duration = Duration::from_secs(60);

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with three endpoints on one node");
    let namespace = cx.namespace().await?;
    let node = cx.nodes().remove(0);
    let placed = ["b1", "b2", "b3"].map(|name| (name, node.as_str()));
    let all = frontends::serving_on(cx, &namespace, &placed, &TARGETS, &TARGETS).await?;
    let mut services = Vec::new();
    for family in cx.families() {
        let mut values = values(&namespace, "sticky", family, TARGETS[0]);
        values["policy"] = "Local".into();
        let ready = all_in(&all, Condition::Ready);
        services.push(SlicedService::create(cx, &family.to_string(), family, values, ready).await?);
    }
    let seen = |seen| -> Result<Vantages, Halt> {
        let inside = cx.clients().to_vec();
        let dialled = |service: &SlicedService| service.dialled(cx, inside.clone(), from_ref(&node), seen);
        let all: Result<Vec<_>, Halt> = services.iter().map(dialled).collect();
        Ok(all?.into_iter().flatten().collect())
    };
    let (one, spread) = (seen(Seen::OneOf(&all))?, seen(Seen::All(&all))?);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    one.control(cx, "it serves", within).await?;

    cx.phase("verdict: each client reaches one backend for a minute");
    let attempts = one.start(cx, WINDOW).await?.hold(cx).await?;
    affinity::judge_bound(cx, &one, &attempts, CONNECTIONS);

    cx.phase("verdict: switched off, they spread");
    let within = switch(cx, &services, "None", &Value::Null).await?;
    spread.judge_briefly(cx, within).await?;

    cx.phase("verdict: switched on again, they stick again");
    let config = json!({ "clientIP": { "timeoutSeconds": SECONDS } });
    let within = switch(cx, &services, "ClientIP", &config).await?;
    let attempts = one.judge(cx, within).await?;
    affinity::judge_bound(cx, &one, &attempts, CONNECTIONS);
    Ok(())
}

async fn switch(
    cx: &Context,
    services: &[SlicedService],
    affinity: &str,
    config: &Value,
) -> Result<Within, Halt> {
    let spec = json!({ "spec": { "sessionAffinity": affinity, "sessionAffinityConfig": config } });
    for service in services {
        cx.objects().patch(service.key(), spec.clone()).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    Ok(within)
}
