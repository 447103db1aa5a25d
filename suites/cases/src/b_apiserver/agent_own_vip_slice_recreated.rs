//! `agent-own-vip-slice-recreated`: the slice behind the agent's own VIP (second run: the Service too, same ClusterIP) is
//! deleted and created again ≥ 5 s later. The agent works again within T_heal of the creation, without a restart.
//!
//! The API server lives all along: only the Service that leads there is gone. The agent's connections are reset meanwhile,
//! and other clients see the truth, which a later creation does not change.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    effect::{self, Effect},
    fence,
    of_target::OfTarget,
    probing,
    verdict::Halt,
    waiting::Within,
};
use serde_json::{Value, json};

use super::own_way::{Canary, Frontend, Led, Way, node};

pub(crate) const CASE: Case = Case {
    id: "agent-own-vip-slice-recreated",
    area: "B default/kubernetes and the agent's own way to the API",
    claims: &["agent-own-vip-slice-recreated"],
    sentence: "an agent reconnects after the slice, or the Service, behind its own API endpoint was created again",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::ApiServers],
        target: &[OfTarget::ServiceWay],
    },
    disruptive: true,
    manifest: include_str!("own_way.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const SLICE: &str = "its slice";
const BOTH: &str = "its slice and its Service";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service that leads to the API server");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    let way = Way::stage(cx, &namespace, Frontend::ClusterIp, &node).await?;
    let mut canary = Canary::stage(cx, &namespace, way.family, &node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: way.address,
        further: Vec::new(),
    };
    let axes = cx.axes().choose(vec![SLICE, BOTH], |axis| (*axis).to_owned());
    let led = Led::lead(cx, &node, &to, &mut canary, &axes).await?;
    for axis in axes {
        recreate(cx, axis, &way, &led, &mut canary).await?;
        led.not_restarted(cx, axis).await?;
        if !cx.axes().is_open(axis) {
            // Whoever is locked out by the one can't be tried with the other.
            break;
        }
    }
    led.back(cx).await
}

async fn recreate(cx: &Context, axis: &str, way: &Way, led: &Led, canary: &mut Canary) -> Result<(), Halt> {
    cx.phase(&format!("{axis}: deleted, and the agent's connections are reset"));
    let slice = again(cx.objects().get(&way.slice).await?);
    let service = again(cx.objects().get(&way.service).await?);
    let others = cx.clients().on(&led.node);
    let mut deleted = cx.objects().delete(&way.slice).await?;
    let mut gone = way.refuses(axis);
    if axis == BOTH {
        deleted = cx.objects().delete(&way.service).await?;
        // An address that nobody has any more.
        gone = way.is_dead(axis);
    }
    let within = Within::from(deleted.at, cx.limits().endpoints);
    let effect = if axis == BOTH {
        Effect::Deleted
    } else {
        Effect::Emptied
    };
    let seen = std::slice::from_ref(&gone);
    effect::takes_effect(cx, effect, "others see that it is gone", &others, seen, within).await?;
    let reset = led.reset(cx).await?;
    led.dials_anew(cx, axis, &reset, deleted.at).await?;
    probing::judge(cx, &others, &[gone], Within::from_now(cx.limits().endpoints)).await?;

    cx.phase(&format!("{axis}: made again"));
    if axis == BOTH {
        cx.objects().create(&service).await?;
    }
    let made = cx.objects().create(&slice).await?;
    let within = Within::from(made.at, cx.limits().heal);
    canary.judge(cx, axis, &led.node, within).await
}

/// An object as it is to be created: with its spec, its ClusterIP among it, and nothing that the API server has added.
fn again(mut object: Value) -> Value {
    let metadata = &object["metadata"];
    object["metadata"] = json!({
        "name": metadata["name"], "namespace": metadata["namespace"], "labels": metadata["labels"],
    });
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}
