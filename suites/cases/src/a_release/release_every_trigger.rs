//! `release-every-trigger`: after a release, the victim serves its backends through each of these alone: a label; a
//! `status.loadBalancer`; a port added; a port removed; sessionAffinity on and off; externalTrafficPolicy to Local and
//! back; an unrelated Service; 10 min without a change.
//!
//! Each trigger has releases of its own, since a trigger that rewrites the victim's backends would hide the effect of
//! the next one; all run concurrently. Every trigger has older and younger victims, and so does every number of shared
//! backends, but not every combination of them. The victim is of type LoadBalancer, the only type with everything that
//! is changed here; its ClusterIP is probed.
use std::time::Duration;

use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    limits::Profile,
    names::Key,
    verdict::Halt,
    write_effect::Effect,
};
use serde_json::{Value, json};

use super::{
    holders::{Hold, PORT, SHARED, all_serve, probed, undisturbed, witnessed},
    pairs::{Pair, Point, staged, victims},
};

pub(crate) const CASE: Case = Case {
    id: "release-every-trigger",
    area: super::AREA,
    claims: &["release-every-trigger"],
    sentence: "a Service keeps its backends through any change, or none, after one whose name is a prefix of its own is emptied",
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
    manifest: include_str!("release_every_trigger.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// What happens to the victim after the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Label,
    Status,
    PortAdded,
    PortRemoved,
    Affinity,
    Policy,
    Unrelated,
    Nothing,
}

const TRIGGERS: [(Trigger, &str); 8] = [
    (Trigger::Label, "label"),
    (Trigger::Status, "status.loadBalancer"),
    (Trigger::PortAdded, "port added"),
    (Trigger::PortRemoved, "port removed"),
    (Trigger::Affinity, "sessionAffinity on and off"),
    (Trigger::Policy, "externalTrafficPolicy Local and back"),
    (Trigger::Unrelated, "an unrelated Service"),
    (Trigger::Nothing, "nothing for 10 min"),
];

/// A Service that shares neither name nor backend with any other.
const UNRELATED: &str = "unrelated";

async fn run(cx: &Context) -> Result<(), Halt> {
    let mut pairs = staged(cx, points(cx)).await?;
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;

    cx.phase("release: the culprit is emptied");
    for pair in &mut pairs {
        pair.culprit.list(cx, &[]).await?;
    }
    let seen: Vec<Destination> = pairs.iter().map(|pair| pair.culprit.refuses()).collect();
    witnessed(cx, (Effect::Emptied, "the culprit refuses"), &seen).await?;

    cx.phase("triggers: each victim must serve its backends for the hold time");
    let window = probed(cx, victims(&pairs), Hold::Time).await?;
    for pair in &pairs {
        change(cx, pair).await?;
    }
    fence::pass(cx).await?;
    for pair in &pairs {
        change_back(cx, pair).await?;
    }
    fence::pass(cx).await?;
    window.hold(cx).await?;
    undisturbed(cx, victims(&pairs), agents.as_ref()).await
}

/// A pair for each trigger and number of shared backends, with older and younger victims by turns.
fn points(cx: &Context) -> Vec<Point<Trigger>> {
    let mut points = Vec::new();
    for (how, name) in TRIGGERS {
        // The hold time is 10 min there.
        if how == Trigger::Nothing && cx.limits().profile != Profile::Long {
            cx.axes()
                .not_enabled(name, &format!("--profile {}", Profile::Long.name()));
            continue;
        }
        for family in cx.families() {
            for shared in SHARED {
                points.push(Point {
                    family,
                    how,
                    name,
                    shared,
                    victim_first: points.len() % 2 == 0,
                });
            }
        }
    }
    cx.axes().choose(points, Point::axis)
}

async fn change(cx: &Context, pair: &Pair<Trigger>) -> Result<(), Halt> {
    let service = &pair.victim.service;
    let patch = match pair.how {
        Trigger::Label => json!({ "metadata": { "labels": { "plumbline-trigger": "1" } } }),
        Trigger::Status => {
            // A hostname, so that it captures no address.
            let status = json!({ "loadBalancer": { "ingress": [{ "hostname": "v.plumbline.example" }] } });
            cx.objects().patch_status(service, status).await?;
            return Ok(());
        }
        Trigger::PortAdded => {
            let mut ports = ports(cx, service).await?;
            ports.push(json!({ "name": "added", "port": 7482, "protocol": "TCP" }));
            json!({ "spec": { "ports": ports } })
        }
        Trigger::PortRemoved => {
            let mut ports = ports(cx, service).await?;
            ports.retain(|port| port["port"] == PORT);
            json!({ "spec": { "ports": ports } })
        }
        Trigger::Affinity => json!({ "spec": { "sessionAffinity": "ClientIP" } }),
        Trigger::Policy => json!({ "spec": { "externalTrafficPolicy": "Local" } }),
        Trigger::Unrelated => {
            let values = json!({
                "service": UNRELATED,
                "namespace": service.namespace,
                "family": pair.victim.family.to_string(),
                "port": PORT,
            });
            cx.apply_service("${service}", &values).await?;
            return Ok(());
        }
        Trigger::Nothing => return Ok(()),
    };
    cx.objects().patch(service, patch).await?;
    Ok(())
}

/// The second half of what is switched on and off.
async fn change_back(cx: &Context, pair: &Pair<Trigger>) -> Result<(), Halt> {
    let spec = match pair.how {
        Trigger::Affinity => json!({ "sessionAffinity": "None", "sessionAffinityConfig": null }),
        Trigger::Policy => json!({ "externalTrafficPolicy": "Cluster" }),
        Trigger::Label
        | Trigger::Status
        | Trigger::PortAdded
        | Trigger::PortRemoved
        | Trigger::Unrelated
        | Trigger::Nothing => return Ok(()),
    };
    let patch = json!({ "spec": spec });
    cx.objects().patch(&pair.victim.service, patch).await?;
    Ok(())
}

/// As they are, with their node ports.
async fn ports(cx: &Context, service: &Key) -> Result<Vec<Value>, Halt> {
    let service = cx.objects().get(service).await?;
    Ok(service["spec"]["ports"].as_array().cloned().unwrap_or_default())
}
