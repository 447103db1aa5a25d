//! `kubesvc-one-of-n-leaves`: one of two addresses of `default/kubernetes` is removed. From the endpoint propagation
//! limit on it gets none of N new connections, no connect fails, and established connections to the other survive.
//!
//! The removed address stays alive as a trap, and every probe is a new connection. The flows are opened while the
//! remaining address is the only one, so that they reach it.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing::Within,
    verdict::Halt,
};

use super::kubernetes::{Kubernetes, backends};

pub(crate) const CASE: Case = Case {
    id: "kubesvc-one-of-n-leaves",
    area: super::AREA,
    claims: &["kubesvc-one-of-n-leaves"],
    sentence: "an address that leaves default/kubernetes gets no new connection, and clients of the other are not disturbed",
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
    manifest: include_str!("kubesvc_one_of_n_leaves.yaml"),
    longest: Duration::from_secs(450),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Established connections, shared among the clients.
const FLOWS: u32 = 10;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: default/kubernetes has a pod as its backend, and flows are opened");
    let namespace = cx.namespace().await?;
    let [stays, leaves] = backends(cx, &namespace).await?;
    let kubernetes = Kubernetes::take(cx).await?;
    let axis = kubernetes.family.to_string();
    let [one, both] = [&[&stays][..], &[&stays, &leaves]].map(|all| [kubernetes.serves(&axis, all)]);
    let listed = kubernetes.list(cx, &[&stays]).await?;
    let within = Within::from(listed.at, cx.limits().endpoints);
    cx.fence().await?;
    cx.control("it serves one address", cx.clients(), &one, within)
        .await?;
    let flows = cx.flows(cx.clients(), &one, FLOWS, within).await?;

    cx.phase("control: another address joins");
    let listed = kubernetes.list(cx, &[&stays, &leaves]).await?;
    let within = Within::from(listed.at, cx.limits().endpoints);
    cx.fence().await?;
    cx.control("it serves both addresses", cx.clients(), &both, within)
        .await?;

    cx.phase("fault: it leaves again");
    let either = [kubernetes.serves_one_of(&axis, &[&stays, &leaves])];
    let never_fails = cx.background(cx.clients(), &either, cx.limits().hold).await?;
    let removed = kubernetes.list(cx, &[&stays]).await?;
    cx.fence().await?;
    let within = Within::from(removed.at, cx.limits().endpoints);
    let mut attempts = cx.judge(cx.clients(), &one, within).await?;
    cx.phase("verdict: one address for the hold time");
    let window = cx.steadily(cx.clients(), &one, cx.limits().hold).await?;
    let held = futures::try_join!(
        cx.hold(window),
        cx.hold(never_fails),
        cx.hold_flows(flows, cx.limits().hold)
    )?;
    attempts.extend(held.0);
    cx.trap_untouched(&axis, &attempts, &leaves).await?;
    kubernetes.give_back(cx).await
}
