//! `service-proxy-name-ignored`: a Service with the label of another proxy reaches no backend. Once the label is removed,
//! the Service is served within the Service propagation limit. Once the label is set again, it reaches no backend.
//!
//! The Service's slice has the label too, because controllers copy it. Proxies differ where only one of the two has the
//! label: Cilium and kube-proxy before 1.36 ignore both kinds of objects (cilium/cilium#45528), kube-proxy since 1.36 ignores
//! Services only (kubernetes/kubernetes#134623). A second Service without the label, with the same backends, is always served.
use std::time::Duration;

use futures::future::try_join_all;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    conditions::Condition,
    context::Context,
    fence, frontends,
    names::{Key, OF_SERVICE},
    sliced_service::{Seen, SlicedService, all_in, everywhere},
    vantages::Vantages,
    verdict::Halt,
    waiting::Within,
};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "service-proxy-name-ignored",
    area: super::AREA,
    claims: &["service-proxy-name-ignored"],
    sentence: "a Service with another proxy's label reaches no backend, and is served once the label is removed",
    tier: Tier::Core,
    features: &["service-proxy-name"],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service_proxy_name_ignored.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const LABEL: &str = "service.kubernetes.io/service-proxy-name";
const OTHER: &str = "plumbline-other";
/// Target ports of the labelled Service and of its twin.
const TARGETS: [u16; 2] = [8080, 8081];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with another proxy's label, and twins without it");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &TARGETS, &TARGETS).await?;
    let (mut labelled, mut twins) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let create = async |name: &str, target: u16, label: Value| {
            let service = format!("{name}-{family}").to_lowercase();
            let mut labels = [label.clone(), label];
            labels[1][OF_SERVICE] = service.as_str().into();
            let [of_service, of_slice] = labels;
            let values = json!({
                "namespace": namespace, "service": service, "target": target,
                "labels": of_service, "labels_of_slice": of_slice,
            });
            let listed = all_in(&backends, Condition::Ready);
            SlicedService::create(cx, &format!("{family}, {name}"), family, values, listed).await
        };
        labelled.push(create("labelled", TARGETS[0], json!({ LABEL: OTHER })).await?);
        twins.push(create("twin", TARGETS[1], json!({})).await?);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let twins = everywhere(cx, &twins, Seen::All(&backends))?;
    twins
        .control(cx, "the twins without the label are served", within)
        .await?;
    cx.phase("verdict: no labelled Service reaches a backend");
    judge(cx, &labelled, &twins, Seen::Nothing).await?;

    cx.phase("change: the label is removed");
    label(cx, &labelled, Value::Null).await?;
    judge(cx, &labelled, &twins, Seen::All(&backends)).await?;

    cx.phase("change: the label is there again");
    label(cx, &labelled, OTHER.into()).await?;
    judge(cx, &labelled, &twins, Seen::Nothing).await
}

/// Sets the label of Services and their slices, or removes it.
async fn label(cx: &Context, services: &[SlicedService], value: Value) -> Result<(), Halt> {
    let patch = &json!({ "metadata": { "labels": { LABEL: value } } });
    let keys = services.iter().flat_map(|service| {
        let key = service.key();
        [key.clone(), Key::slice(&key.namespace, &key.name)]
    });
    try_join_all(keys.map(async |key| cx.objects().patch(&key, patch.clone()).await)).await?;
    Ok(())
}

/// Verdict within the Service propagation limit: the labelled Services are as `seen`, the twins are served.
async fn judge(
    cx: &Context,
    labelled: &[SlicedService],
    twins: &Vantages,
    seen: Seen<'_>,
) -> Result<(), Halt> {
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let changed = everywhere(cx, labelled, seen)?;
    let both = changed.groups().iter().chain(twins.groups()).cloned();
    both.collect::<Vantages>().judge_briefly(cx, within).await
}
