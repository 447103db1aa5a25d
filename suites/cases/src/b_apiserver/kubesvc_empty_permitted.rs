//! `kubesvc-empty-permitted`: while the EndpointSlice of `default/kubernetes` is empty, a probe of its ClusterIP is
//! refused, or is served by an address of the last version that was not empty, and by nothing else. Which of the two is
//! recorded.
//!
//! The version before the last lists a trap. An ordinary Service with the same backend is emptied in the same way and
//! must have no backend, so that an implementation keeps the last backend of this Service only.
use std::time::Duration;

use cluster::Capability;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    history::now_us,
    names::Key,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{
    history::{Attempt, Transport},
    observations::{line, outcomes},
};
use serde_json::json;

use super::kubernetes::{Kubernetes, TARGET, backends};
use crate::null_slice::null_slice;

pub(crate) const CASE: Case = Case {
    id: "kubesvc-empty-permitted",
    area: super::AREA,
    claims: &["kubesvc-empty-permitted"],
    sentence: "while default/kubernetes has no endpoint, its address refuses or reaches the last one, and nothing else",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Unreconciled],
        target: &[],
    },
    // Other clients of default/kubernetes are affected.
    disruptive: true,
    manifest: include_str!("kubesvc_empty_permitted.yaml"),
    longest: Duration::from_secs(450),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TWIN: &str = "twin";
const PORT: u16 = 443;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: default/kubernetes and an ordinary twin have the same pod as their backend");
    let namespace = cx.namespace().await?;
    let [trap, last] = backends(cx, &namespace).await?;
    let kubernetes = Kubernetes::take(cx).await?;
    let axis = kubernetes.family.to_string();
    let listed = |backend: &Backend| endpoints([backend], kubernetes.family);
    let values = json!({
        "namespace": namespace, "family": axis, "target": TARGET, "endpoints": listed(&trap)?,
    });
    let twin = (cx.apply_service(TWIN, &values).await?, PORT).into();
    let slice = Key::slice(&namespace, TWIN);
    let twin_serves = |backend: &Backend| {
        let expected = identities([backend], Transport::Tcp, TARGET);
        Destination::serves(&axis, TWIN, Transport::Tcp, twin, expected)
    };

    cx.phase("control: both serve the first pod, and then the second");
    let mut written = kubernetes.list(cx, &[&trap]).await?;
    for backend in [&trap, &last] {
        if backend != &trap {
            let patch = json!({ "endpoints": listed(backend)? });
            cx.objects().patch(&slice, patch).await?;
            written = kubernetes.list(cx, &[backend]).await?;
        }
        let both = [kubernetes.serves(&axis, &[backend]), twin_serves(backend)];
        let within = Within::from(written.at, cx.limits().endpoints);
        fence::pass(cx).await?;
        probing::control(
            cx,
            "both follow their EndpointSlices",
            cx.clients(),
            &both,
            within,
        )
        .await?;
    }

    cx.phase("fault: both are emptied, for the hold time");
    let permitted = [kubernetes.serves_or_refuses(&axis, &[&last])];
    let window = Background::start(cx, cx.clients(), &permitted, cx.limits().hold).await?;
    null_slice(cx, &slice).await?;
    let emptied = kubernetes.empty(cx).await?;
    fence::pass(cx).await?;
    let handled_us = now_us();
    let refuses = [Destination::refuses(&axis, TWIN, Transport::Tcp, twin)];
    let within = Within::from(emptied.at, cx.limits().endpoints);
    probing::judge(cx, cx.clients(), &refuses, within).await?;
    let twins = Background::steadily(cx, cx.clients(), &refuses, cx.limits().hold).await?;
    let (attempts, _) = futures::try_join!(window.hold(cx), twins.hold(cx))?;
    probing::trap_untouched(cx, &axis, &attempts, &trap).await?;
    record(cx, &attempts, handled_us);
    kubernetes.give_back(cx).await
}

/// What clients get once every node has handled the empty EndpointSlice.
fn record(cx: &Context, attempts: &[Attempt], handled_us: u64) {
    for node in cx.nodes() {
        let clients: Vec<String> = cx.clients().on(&node).into_iter().map(|one| one.name).collect();
        let while_empty = attempts
            .iter()
            .filter(|attempt| attempt.start_us >= handled_us && clients.contains(&attempt.client));
        cx.record(
            &format!("while it is empty, on {node}"),
            line(&outcomes(while_empty)),
        );
    }
}
