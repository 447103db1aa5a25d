//! `hcnp-agent-dead`: while the agent of a node is stopped, the node's health check port does not answer 200 for an
//! endpoint that has left since: within the recovery limit it is 503, refused or silent, and stays so for the hold time.
//!
//! A kernel or another process may answer in the agent's place: that is what is tested. One agent is killed, and the
//! other one terminated.
use std::time::Duration;

use cluster::{Capability, Stop};
use faults::StoppedAgent;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontends::{self, Frontends},
    health_checks,
    names::Key,
    pods::endpoints,
    verdict::Halt,
    waiting::Within,
};
use oracle::health::Health;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "hcnp-agent-dead",
    area: super::AREA,
    claims: &["hcnp-agent-dead"],
    sentence: "the health check node port of a node without an agent is not 200 for an endpoint that has left",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("hcnp.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TARGET: u16 = 8080;
/// The first health check node port.
const HEALTH_PORT: u16 = 30_056;
/// How each of two nodes' agents ends.
const STOPS: [Stop; 2] = [Stop::Kill, Stop::Term];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service of policy Local, with a backend on each of two nodes");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let client = cx.clients().outside();
    let client = client.ok_or_else(|| Halt::Harness("no client outside".to_owned()))?;
    let (mut checks, mut slices) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let port = HEALTH_PORT + u16::try_from(slices.len()).unwrap_or_default();
        let values = json!({
            "namespace": namespace, "service": format!("dead{}", slices.len()), "health-port": port,
            "endpoints": endpoints(&backends, family)?,
        });
        let made = Frontends::create(cx, family, values).await?;
        slices.push(Key::slice(&namespace, &made.service.name));
        for (backend, stop) in backends.iter().zip(STOPS) {
            let axis = format!("{family}, {stop:?}");
            let all = health_checks::at_nodes(cx, &axis, made.object(), family)?;
            checks.extend(all.into_iter().filter(|check| check.node == backend.node));
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let must = |health: Health| -> Vec<_> { checks.iter().map(|check| (check.clone(), health)).collect() };
    health_checks::judge(cx, &client, &must(Health::Ok), within).await?;

    cx.phase("fault: the agents are stopped, and then the endpoints leave");
    let mut stopped = Vec::new();
    for (backend, stop) in backends.iter().zip(STOPS) {
        let before = cx.cluster().agents()?.state(&backend.node).await?;
        stopped.push((
            before,
            StoppedAgent::stop(cx.faults(), &backend.node, stop).await?,
        ));
    }
    for slice in &slices {
        cx.objects().patch(slice, json!({ "endpoints": [] })).await?;
    }

    cx.phase("verdict: no health check is 200, for the hold time");
    let within = Within::from_now(cx.limits().heal);
    health_checks::judge(cx, &client, &must(Health::NotOk), within).await?;
    health_checks::hold(cx, &client, &must(Health::NotOk)).await?;

    cx.phase("verdict: the agents start, and health checks are 503");
    for (backend, (before, agent)) in backends.iter().zip(stopped) {
        let started = Within::from_now(cx.limits().heal);
        agent.start().await?;
        agents::ready(cx, &backend.node, &before, started).await?;
    }
    let within = Within::from_now(cx.limits().heal);
    health_checks::judge(cx, &client, &must(Health::Unavailable), within).await
}
