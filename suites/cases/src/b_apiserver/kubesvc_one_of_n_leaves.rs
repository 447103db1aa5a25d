//! `kubesvc-one-of-n-leaves`: one of two addresses of `default/kubernetes` is removed. From the endpoint propagation
//! limit on it gets none of N new connections, no connect fails, and established connections to the other survive.
//!
//! The removed address stays alive as a trap, and every probe is a new connection. The flows are opened while the
//! remaining address is the only one, so that they reach it.
use std::time::Duration;

use cluster::Capability;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    flows::Flows,
    probing,
    verdict::Halt,
    waiting::Within,
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
    fence::pass(cx).await?;
    probing::control(cx, "it serves one address", cx.clients(), &one, within).await?;
    let flows = Flows::open(cx, cx.clients(), &one, FLOWS, within).await?;

    cx.phase("control: another address joins");
    let listed = kubernetes.list(cx, &[&stays, &leaves]).await?;
    let within = Within::from(listed.at, cx.limits().endpoints);
    fence::pass(cx).await?;
    probing::control(cx, "it serves both addresses", cx.clients(), &both, within).await?;

    cx.phase("fault: it leaves again");
    let either = [kubernetes.serves_one_of(&axis, &[&stays, &leaves])];
    let never_fails = Background::start(cx, cx.clients(), &either, cx.limits().hold).await?;
    let removed = kubernetes.list(cx, &[&stays]).await?;
    fence::pass(cx).await?;
    let within = Within::from(removed.at, cx.limits().endpoints);
    let mut attempts = probing::judge(cx, cx.clients(), &one, within).await?;
    cx.phase("verdict: one address for the hold time");
    let window = Background::steadily(cx, cx.clients(), &one, cx.limits().hold).await?;
    let held = futures::try_join!(
        window.hold(cx),
        never_fails.hold(cx),
        flows.hold(cx, cx.limits().hold)
    )?;
    attempts.extend(held.0);
    probing::trap_untouched(cx, &axis, &attempts, &leaves).await?;
    kubernetes.give_back(cx).await
}
