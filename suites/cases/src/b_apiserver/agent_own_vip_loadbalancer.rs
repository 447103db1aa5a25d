//! `agent-own-vip-loadbalancer`: the agent's API address is the LB VIP of Service `default/kubernetes-x`, same backend as
//! `default/kubernetes`. Emptying `default/kubernetes` and patching `kubernetes-x` never fails a dial through the VIP;
//! emptying `kubernetes-x` itself and refilling it ends with a canary effective within T_heal. No restart.
//!
//! The agent's connections are reset after each emptying, or it would not dial. A host process dials the VIP every 100 ms.
use std::time::Duration;

use cluster::{ApiEndpoint, Capability};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    effect::{self, Effect},
    fence,
    objects::annotation,
    of_target::OfTarget,
    probing,
    verdict::Halt,
    waiting::Within,
};

use super::{
    kubernetes::Kubernetes,
    own_way::{Canary, Frontend, Led, Way, all_taken, node},
};

pub(crate) const CASE: Case = Case {
    id: "agent-own-vip-loadbalancer",
    area: "B default/kubernetes and the agent's own way to the API",
    claims: &["agent-own-vip-loadbalancer"],
    sentence: "an agent that reaches the API by a load balancer's address reconnects, whichever Service was emptied",
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
    manifest: include_str!("own_way.yaml"),
    longest: Duration::from_secs(500),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const KUBERNETES: &str = "default/kubernetes is emptied";
const OWN: &str = "its own Service is emptied";

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: default/kubernetes-x leads to the API server, too");
    let (namespace, node) = (cx.namespace().await?, node(cx)?);
    cx.objects().watch().follow_namespace("default");
    let way = Way::stage(cx, "default", Frontend::LoadBalancer, &node).await?;
    let mut canary = Canary::stage(cx, &namespace, way.family, &node).await?;
    fence::pass(cx).await?;
    let to = ApiEndpoint {
        server: way.address,
        further: Vec::new(),
    };
    let axes = cx.axes().choose(vec![KUBERNETES, OWN], |axis| (*axis).to_owned());
    let led = Led::lead(cx, &node, &to, &mut canary, &axes).await?;

    for axis in axes {
        if axis == KUBERNETES {
            kubernetes_is_emptied(cx, &way, &led, &mut canary).await?;
        } else {
            own_is_emptied(cx, &way, &led, &mut canary).await?;
        }
        if !cx.axes().is_open(axis) {
            // An agent that is locked out by the one can't be tried with the other.
            break;
        }
    }
    led.back(cx).await
}

async fn kubernetes_is_emptied(cx: &Context, way: &Way, led: &Led, canary: &mut Canary) -> Result<(), Halt> {
    let kubernetes = Kubernetes::take(cx).await?;
    let steps = async {
        cx.phase(&format!("{KUBERNETES}: emptied, and kubernetes-x is patched"));
        let emptied = kubernetes.empty(cx).await?;
        fence::pass(cx).await?;
        cx.objects()
            .patch(&way.service, annotation("plumbline-trigger", "1"))
            .await?;
        fence::pass(cx).await?;
        let reset = led.reset(cx).await?;
        led.dials_anew(cx, KUBERNETES, &reset, emptied.at).await?;
        let within = Within::from_now(cx.limits().heal);
        canary.judge(cx, KUBERNETES, &led.node, within).await
    };
    all_taken(cx, KUBERNETES, &led.node, way, steps).await?;
    led.not_restarted(cx, KUBERNETES).await?;
    kubernetes.give_back(cx).await
}

async fn own_is_emptied(cx: &Context, way: &Way, led: &Led, canary: &mut Canary) -> Result<(), Halt> {
    cx.phase(&format!("{OWN}: emptied, and the agent's connections are reset"));
    let others = cx.clients().on(&led.node);
    let refuses = [way.refuses(OWN)];
    let emptied = way.empty(cx).await?;
    let within = Within::from(emptied.at, cx.limits().endpoints);
    let (effect, what) = (Effect::Emptied, "others see that it is empty");
    effect::takes_effect(cx, effect, what, &others, &refuses, within).await?;
    let reset = led.reset(cx).await?;
    led.dials_anew(cx, OWN, &reset, emptied.at).await?;
    probing::judge(cx, &others, &refuses, Within::from_now(cx.limits().endpoints)).await?;

    cx.phase(&format!("{OWN}: refilled"));
    let filled = way.list(cx, way.server).await?;
    let within = Within::from(filled.at, cx.limits().heal);
    canary.judge(cx, OWN, &led.node, within).await?;
    led.not_restarted(cx, OWN).await
}
