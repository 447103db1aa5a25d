//! `agent-own-vip-slice-recreated`: the EndpointSlice behind the agent's own API endpoint (in a second run the Service
//! too, with the same ClusterIP) is deleted and created again at least 5 s later. The agent works again within the
//! recovery limit after the creation, without a restart.
//!
//! The API server keeps running: only the path through the Service is gone. The agent's connections are reset
//! meanwhile, and other clients see the Service without endpoints until it is created again.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};
use serde_json::{Value, json};

use super::api_endpoint::{AgentUnderTest, ApiService, Canary, Frontend, node};

pub(crate) const CASE: Case = Case {
    id: "agent-own-vip-slice-recreated",
    area: super::AREA,
    claims: &["agent-own-vip-slice-recreated"],
    sentence: "an agent reconnects after the EndpointSlice or the Service of its own API endpoint was created again",
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
    manifest: include_str!("api_endpoint.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const SLICE: &str = "its slice";
const BOTH: &str = "its slice and its Service";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with the API server as its backend");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    let api = ApiService::stage(cx, &namespace, Frontend::ClusterIp, &node).await?;
    let mut canary = Canary::stage(cx, &namespace, api.family, &node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: api.address,
        further: Vec::new(),
    };
    let axes = cx.axes().choose(vec![SLICE, BOTH], |axis| (*axis).to_owned());
    let agent = AgentUnderTest::redirect(cx, &node, &to, &mut canary, &axes).await?;
    for axis in axes {
        recreate(cx, axis, &api, &agent, &mut canary).await?;
        agent.not_restarted(cx, axis).await?;
        if !cx.axes().is_open(axis) {
            // An agent that the first step locks out cannot be tested with the second.
            break;
        }
    }
    agent.back(cx).await
}

async fn recreate(
    cx: &Context,
    axis: &str,
    api: &ApiService,
    agent: &AgentUnderTest,
    canary: &mut Canary,
) -> Result<(), Halt> {
    cx.phase(&format!("{axis}: deleted, and the agent's connections are reset"));
    let slice = again(cx.objects().get(&api.slice).await?);
    let service = again(cx.objects().get(&api.service).await?);
    let others = cx.clients().on(&agent.node);
    let mut deleted = cx.objects().delete(&api.slice).await?;
    let mut gone = api.refuses(axis);
    if axis == BOTH {
        deleted = cx.objects().delete(&api.service).await?;
        // An address that no Service has any more.
        gone = api.is_dead(axis);
    }
    let within = Within::from(deleted.at, cx.limits().endpoints);
    let effect = if axis == BOTH {
        Effect::Deleted
    } else {
        Effect::Emptied
    };
    let seen = std::slice::from_ref(&gone);
    write_effect::takes_effect(cx, effect, "others see that it is deleted", &others, seen, within).await?;
    let reset = agent.reset(cx).await?;
    agent.dials_again(cx, axis, &reset, deleted.at).await?;
    probing::judge(cx, &others, &[gone], Within::from_now(cx.limits().endpoints)).await?;

    cx.phase(&format!("{axis}: made again"));
    if axis == BOTH {
        cx.objects().create(&service).await?;
    }
    let made = cx.objects().create(&slice).await?;
    let within = Within::from(made.at, cx.limits().heal);
    canary.judge(cx, axis, &agent.node, within).await
}

/// An object to create: with its spec and ClusterIP, and without what the API server has added.
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
