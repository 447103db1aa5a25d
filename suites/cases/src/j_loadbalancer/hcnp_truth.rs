//! `hcnp-truth`: the health check node port answers 200 on nodes with a ready endpoint, and 503 on those without one or
//! with one that is only terminating, which goes on serving the node port. It is closed once the Service leaves the
//! external policy `Local`, or is deleted.
//!
//! The client outside asks every node, as a load balancer does. What answers with 200 say is recorded.
use std::{slice, time::Duration};

use cluster::{Capability, Family};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    health_checks::{self, HealthCheck},
    names::Key,
    pods::Backend,
    probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::health::Health;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "hcnp-truth",
    area: super::AREA,
    claims: &["hcnp-truth"],
    sentence: "health check node ports answer 200 with a ready endpoint, 503 without, and close with their Service",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("hcnp.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TARGET: u16 = 8080;
/// The first health check node port: no other case has those of a block of eight.
const HEALTH_PORT: u16 = 30_048;
/// How each Service ends.
const ENDS: [&str; 2] = ["leaves the policy", "is deleted"];

/// A backend's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Ready,
    Terminating,
    Absent,
}

/// One after the other, endpoints of the first and of the second node's backend.
const STEPS: [[Endpoint; 2]; 4] = [
    [Endpoint::Ready, Endpoint::Absent],
    [Endpoint::Terminating, Endpoint::Absent],
    [Endpoint::Terminating, Endpoint::Ready],
    [Endpoint::Ready, Endpoint::Ready],
];

struct Checked {
    family: Family,
    end: &'static str,
    service: Key,
    checks: Vec<HealthCheck>,
    made: Frontends,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services of policy Local");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let client = cx.clients().outside();
    let client = client.ok_or_else(|| Halt::Harness("no client outside".to_owned()))?;
    let mut all = Vec::new();
    for family in cx.families() {
        for end in ENDS {
            let port = HEALTH_PORT + u16::try_from(all.len()).unwrap_or_default();
            let values = json!({
                "namespace": namespace, "service": format!("h{}", all.len()), "health-port": port,
                "endpoints": listed(&backends, STEPS[0], family)?,
            });
            let made = Frontends::create(cx, family, values).await?;
            let axis = format!("{family}, {end}");
            all.push(Checked {
                family,
                end,
                checks: health_checks::at_nodes(cx, &axis, made.object(), family)?,
                service: made.service.clone(),
                made,
            });
        }
    }
    for step in STEPS {
        cx.phase(&format!("verdict: the endpoints of two nodes are {step:?}"));
        for one in &all {
            let slice = Key::slice(&namespace, &one.service.name);
            let endpoints = listed(&backends, step, one.family)?;
            cx.objects()
                .patch(&slice, json!({ "endpoints": endpoints }))
                .await?;
        }
        let within = Within::from_now(cx.limits().endpoints);
        fence::pass(cx).await?;
        let health = |check: &HealthCheck| {
            let mut ready = backends.iter().zip(step);
            let is_ready =
                ready.any(|(backend, state)| backend.node == check.node && state == Endpoint::Ready);
            if is_ready { Health::Ok } else { Health::Unavailable }
        };
        judge(cx, &client, &all, health, within).await?;
        let mut served = Vec::new();
        for one in &all {
            served.extend(one.served(cx, &backends, step));
        }
        probing::judge_briefly(cx, slice::from_ref(&client), &served, within).await?;
    }

    cx.phase("verdict: the ports are closed, for the hold time");
    for one in &all {
        if one.end == ENDS[0] {
            let policy = json!({ "spec": { "externalTrafficPolicy": "Cluster" } });
            cx.objects().patch(&one.service, policy).await?;
        } else {
            cx.objects().delete(&one.service).await?;
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    judge(cx, &client, &all, |_| Health::Closed, within).await?;
    let closed: Vec<_> = all
        .iter()
        .flat_map(|one| &one.checks)
        .map(|check| (check.clone(), Health::Closed))
        .collect();
    health_checks::hold(cx, &client, &closed).await
}

async fn judge(
    cx: &Context,
    client: &Client,
    all: &[Checked],
    health: impl Fn(&HealthCheck) -> Health,
    within: Within,
) -> Result<(), Halt> {
    let checks: Vec<_> = all
        .iter()
        .flat_map(|one| &one.checks)
        .map(|check| (check.clone(), health(check)))
        .collect();
    health_checks::judge(cx, client, &checks, within).await
}

impl Checked {
    /// Node ports of nodes that have an endpoint, which serves them, ready or terminating.
    fn served(&self, cx: &Context, backends: &[Backend], step: [Endpoint; 2]) -> Vec<Destination> {
        let axis = format!("{}, {}", self.family, self.end);
        let leads = frontends::leading_to(cx, self.made.object(), self.family);
        let mut served = Vec::new();
        for (backend, state) in backends.iter().zip(step) {
            let of_node = leads
                .iter()
                .filter(|one| state != Endpoint::Absent && one.place == backend.node);
            served.extend(of_node.map(|one| one.serves(&axis, slice::from_ref(backend))));
        }
        served
    }
}

fn listed(backends: &[Backend], step: [Endpoint; 2], family: Family) -> Result<Value, Halt> {
    let mut endpoints = Vec::new();
    for (backend, state) in backends.iter().zip(step) {
        let mut endpoint = backend.endpoint(family, state == Endpoint::Ready)?;
        if state == Endpoint::Terminating {
            endpoint["conditions"] = json!({ "ready": false, "serving": true, "terminating": true });
        }
        endpoints.extend((state != Endpoint::Absent).then_some(endpoint));
    }
    Ok(endpoints.into())
}
