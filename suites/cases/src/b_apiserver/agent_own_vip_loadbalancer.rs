//! `agent-own-vip-loadbalancer`: the agent's API address is the load balancer address of Service
//! `default/kubernetes-x`, which has the backend of `default/kubernetes`. Emptying `default/kubernetes` and patching
//! `kubernetes-x` never fails a dial of that address; after emptying and refilling `kubernetes-x` itself a canary takes
//! effect within the recovery limit. No restart.
//!
//! The agent's connections are reset after each emptying, or it would not dial. A host process dials the address every
//! 100 ms.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    objects::annotation,
    probing,
    target_needs::OfTarget,
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};

use super::{
    api_endpoint::{AgentUnderTest, ApiService, Canary, Frontend, all_accepted, node},
    kubernetes::Kubernetes,
};

pub(crate) const CASE: Case = Case {
    id: "agent-own-vip-loadbalancer",
    area: super::AREA,
    claims: &["agent-own-vip-loadbalancer"],
    sentence: "an agent that reaches the API through a load balancer address reconnects, whichever Service was emptied",
    tier: Tier::Robustness,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[
            Capability::LoadBalancerAddresses,
            Capability::ApiServers,
            Capability::Unreconciled,
        ],
        target: &[OfTarget::ServiceWay],
    },
    disruptive: true,
    manifest: include_str!("api_endpoint.yaml"),
    longest: Duration::from_secs(500),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const KUBERNETES: &str = "default/kubernetes is emptied";
const OWN: &str = "its own Service is emptied";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: default/kubernetes-x has the API server as its backend, too");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    cx.objects().watch().follow_namespace("default");
    let api = ApiService::stage(cx, "default", Frontend::LoadBalancer, &node).await?;
    let mut canary = Canary::stage(cx, &namespace, api.family, &node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: api.address,
        further: Vec::new(),
    };
    let axes = cx.axes().choose(vec![KUBERNETES, OWN], |axis| (*axis).to_owned());
    let agent = AgentUnderTest::redirect(cx, &node, &to, &mut canary, &axes).await?;

    for axis in axes {
        if axis == KUBERNETES {
            kubernetes_is_emptied(cx, &api, &agent, &mut canary).await?;
        } else {
            its_service_is_emptied(cx, &api, &agent, &mut canary).await?;
        }
        if !cx.axes().is_open(axis) {
            // An agent that the first step locks out cannot be tested with the second.
            break;
        }
    }
    agent.back(cx).await
}

async fn kubernetes_is_emptied(
    cx: &Context,
    api: &ApiService,
    agent: &AgentUnderTest,
    canary: &mut Canary,
) -> Result<(), Halt> {
    let kubernetes = Kubernetes::take(cx).await?;
    let steps = async {
        cx.phase(&format!("{KUBERNETES}: emptied, and kubernetes-x is patched"));
        let emptied = kubernetes.empty(cx).await?;
        fence::pass(cx).await?;
        cx.objects()
            .patch(&api.service, annotation("plumbline-trigger", "1"))
            .await?;
        fence::pass(cx).await?;
        let reset = agent.reset(cx).await?;
        agent.dials_again(cx, KUBERNETES, &reset, emptied.at).await?;
        let within = Within::from_now(cx.limits().heal);
        canary.judge(cx, KUBERNETES, &agent.node, within).await
    };
    all_accepted(cx, KUBERNETES, &agent.node, api, steps).await?;
    agent.not_restarted(cx, KUBERNETES).await?;
    kubernetes.give_back(cx).await
}

async fn its_service_is_emptied(
    cx: &Context,
    api: &ApiService,
    agent: &AgentUnderTest,
    canary: &mut Canary,
) -> Result<(), Halt> {
    cx.phase(&format!("{OWN}: emptied, and the agent's connections are reset"));
    let others = cx.clients().on(&agent.node);
    let refuses = [api.refuses(OWN)];
    let emptied = api.empty(cx).await?;
    let within = Within::from(emptied.at, cx.limits().endpoints);
    let (effect, what) = (Effect::Emptied, "others see that it is empty");
    write_effect::takes_effect(cx, effect, what, &others, &refuses, within).await?;
    let reset = agent.reset(cx).await?;
    agent.dials_again(cx, OWN, &reset, emptied.at).await?;
    probing::judge(cx, &others, &refuses, Within::from_now(cx.limits().endpoints)).await?;

    cx.phase(&format!("{OWN}: refilled"));
    let filled = api.list(cx, api.server).await?;
    let within = Within::from(filled.at, cx.limits().heal);
    canary.judge(cx, OWN, &agent.node, within).await?;
    agent.not_restarted(cx, OWN).await
}
