//! `terminating-fallback`: where all endpoints are terminating, those that are still serving are served. Under policy
//! `Local` only those of the node count, whatever others there are; a node that has none serves none. Hints do not
//! narrow them.
//!
//! Their backends serve all the while, so that what fails is the choice.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    pods::Backend,
    sliced_service::{Seen, SlicedService},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};
use serde_json::json;

use super::{TARGETS, values};

pub(crate) const CASE: Case = Case {
    id: "terminating-fallback",
    area: super::AREA,
    claims: &["terminating-fallback"],
    sentence: "where all endpoints are terminating, those that are still serving are served",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Which endpoints are in scope of a node, and how they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// All: both drain.
    Cluster,
    /// All: both drain, and each has a hint for its own node.
    Hints,
    /// Those of the node: one node has one that drains, the other none.
    Local,
    /// The same, and the other node has a ready one.
    LocalBesideReady,
}

impl Scope {
    const ALL: [(&'static str, Self); 4] = [
        ("policy Cluster", Self::Cluster),
        ("hints", Self::Hints),
        ("policy Local", Self::Local),
        ("policy Local, ready elsewhere", Self::LocalBesideReady),
    ];

    fn policy(self) -> &'static str {
        match self {
            Self::Cluster | Self::Hints => "Cluster",
            Self::Local | Self::LocalBesideReady => "Local",
        }
    }

    /// The endpoints, of one backend on each of two nodes, before and after.
    fn listed(self, [first, second]: &[Backend; 2], before: bool) -> Vec<(&Backend, Condition)> {
        let drains = if before {
            Condition::Ready
        } else {
            Condition::Draining
        };
        match self {
            Self::Cluster | Self::Hints => vec![(first, drains), (second, drains)],
            Self::Local => vec![(first, drains)],
            Self::LocalBesideReady => vec![(first, drains), (second, Condition::Ready)],
        }
    }

    /// What clients of both nodes see, before and after.
    fn seen(self, both: &[Backend; 2]) -> [Seen<'_>; 2] {
        let [first, second] = [&both[..1], &both[1..]];
        match self {
            Self::Cluster | Self::Hints => [Seen::All(both); 2],
            Self::Local => [Seen::All(first), Seen::Nothing],
            Self::LocalBesideReady => [Seen::All(first), Seen::All(second)],
        }
    }
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with endpoints on two nodes");
    let namespace = cx.namespace().await?;
    let nodes = cx.nodes();
    let both = frontends::serving(cx, &namespace, &["b1", "b2"], &TARGETS, &TARGETS).await?;
    let both: [Backend; 2] = both
        .try_into()
        .map_err(|_| Halt::Harness("not two backends".to_owned()))?;
    let scopes = cx
        .axes()
        .choose(Scope::ALL.to_vec(), |(scope, _)| (*scope).to_owned());
    let (mut services, mut expected) = (Vec::new(), Vec::new());
    for family in cx.families() {
        for ((name, scope), target) in scopes.iter().zip(TARGETS) {
            let mut values = values(&namespace, name, family, target);
            values["policy"] = scope.policy().into();
            let listed = scope.listed(&both, true);
            let axis = format!("{family}, {name}");
            let made = SlicedService::create(cx, &axis, family, values, listed).await?;
            for (node, seen) in nodes.iter().zip(scope.seen(&both)) {
                expected.extend(made.at_node(cx, node, seen)?);
            }
            services.push((made, *scope));
        }
    }
    let expected: Vantages = expected.into_iter().collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    expected
        .control(cx, "they serve while they are ready", within)
        .await?;

    cx.phase("fault: all endpoints in scope drain");
    for (service, scope) in &services {
        let mut endpoints = Vec::new();
        for (backend, condition) in scope.listed(&both, false) {
            let mut endpoint = condition.endpoint(backend, service.family())?;
            if *scope == Scope::Hints {
                // Heeded, it would leave each node its own endpoint.
                endpoint["hints"] = json!({ "forNodes": [{ "name": backend.node }] });
            }
            endpoints.push(endpoint);
        }
        service.write(cx, json!({ "endpoints": endpoints })).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: they serve on, for the hold time, and only where they are in scope");
    expected.judge(cx, within).await?;
    expected.steadily(cx, cx.limits().hold).await?.hold(cx).await?;
    Ok(())
}
