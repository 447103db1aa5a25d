//! `external-no-endpoints`: from outside, node port, load balancer address and external IP of a Service without
//! endpoints reach no backend: with an empty EndpointSlice, and with none. `external-no-endpoints-rejected`: a TCP
//! client outside is refused within 1 s, by targets that declare it.
//!
//! The same client was served before, and the former backends still listen. The external policy is `Cluster`. Otherwise
//! refusal or silence is the target's choice, and recorded.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    frontend_kinds::Kind,
    verdict::Halt,
};
use oracle::{check::Permitted, history::Transport};

use super::emptied::{self, Emptied, Loss};

pub(crate) const CASE: Case = Case {
    id: "external-no-endpoints",
    area: super::AREA,
    claims: &["external-no-endpoints"],
    sentence: "from outside, no frontend of a Service without endpoints reaches a backend",
    tier: Tier::Core,
    features: &[],
    // EndpointSlices are hand-written: one is emptied, one is deleted.
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("emptied.yaml"),
    longest: Duration::from_secs(450),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, Permitted::None)),
};
pub(crate) const REJECTED: Case = Case {
    id: "external-no-endpoints-rejected",
    sentence: "from outside, connections to a Service without endpoints are refused within 1 s",
    features: &["reject-external"],
    run: |cx| Box::pin(run(cx, Permitted::Refuse)),
    ..CASE
};

async fn run(cx: &Context, connections: Permitted) -> Result<(), Halt> {
    let staged = Emptied::stage(cx, &[Loss::Left, Loss::SliceDeleted], &Kind::OUTSIDE).await?;
    let dialled = staged.dialled_outside(cx);
    let within = staged.lose(cx, &dialled).await?;

    cx.phase("verdict: no frontend reaches a backend, for the hold time after the fence");
    let permitted = |transport| match transport {
        Transport::Tcp => connections.clone(),
        // Nothing says that a datagram was refused, but an ICMP error that kernels send a second or so after the other.
        _ => Permitted::None,
    };
    emptied::judge(cx, &dialled, |target| permitted(target.transport), within).await?;
    staged.answer_directly(cx).await
}
