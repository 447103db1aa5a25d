//! `atomic-endpoint-switch`: one write of the EndpointSlice replaces the only endpoint by another, 100 times, one in a
//! second. No connection fails, and each is answered by one of the two.
//!
//! Both backends are alive all along: whatever fails is a gap in the tables. Each client begins a connection every 10
//! ms.
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontend_kinds::{Kind, inside_and_outside},
    frontends,
    probing::{self, identities},
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::{check::Permitted, history::Transport};

use super::listed::{Listed, TARGET, through};

pub(crate) const CASE: Case = Case {
    id: "atomic-endpoint-switch",
    area: super::AREA,
    claims: &["atomic-endpoint-switch"],
    sentence: "no connection fails while one write after the other replaces the only endpoint",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::from_secs(100),
    run: |cx| Box::pin(run(cx)),
};

const SWITCHES: usize = 100;
/// From one write to the next, and from one connection of a client to the next.
const EVERY: Duration = Duration::from_secs(1);
const PROBE: Duration = Duration::from_millis(10);
/// What goes on when the last switch was written: it takes effect meanwhile.
const AFTER: Duration = Duration::from_secs(2);

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service of one of two backends");
    let namespace = cx.namespace().await?;
    let node = &cx.nodes()[0];
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let kinds = [Kind::ClusterIp, Kind::NodePort];
    let (mut services, mut targets) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let names = ("switched", "switched");
        let made = Listed::create(cx, &namespace, names, family, &kinds, &backends[..1]).await?;
        targets.extend(made.serves_by(cx, Transport::Tcp, &backends[..1]).await?);
        services.push(made);
    }
    let [inside, outside] = inside_and_outside(&through(node, targets));
    let at_cluster_ip = inside
        .iter()
        .filter(|target| !outside.iter().any(|other| other.address == target.address));
    let mut dialled = vec![(
        cx.clients().on(node),
        at_cluster_ip.cloned().collect::<Vec<Destination>>(),
    )];
    dialled.extend(cx.clients().outside().map(|client| (vec![client], outside)));
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in &dialled {
        probing::control(cx, "the first endpoint serves", clients, targets, within).await?;
    }

    cx.phase("the endpoint is replaced again and again, and every connection is answered");
    let either = Permitted::ServesOneOf(identities(&backends, Transport::Tcp, TARGET));
    let mut windows = Vec::new();
    for (clients, targets) in &dialled {
        let targets = frontends::permitting(targets, &either);
        windows.push(Background::every(cx, clients, &targets, PROBE, AFTER).await?);
    }
    let began = Instant::now();
    for (number, turn) in (0..).zip(1..=SWITCHES) {
        let now = std::slice::from_ref(&backends[turn % 2]);
        try_join_all(services.iter().map(|service| service.list(cx, now))).await?;
        has_lasted(began, EVERY * (number + 1)).await;
    }
    let held = try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;
    let connections: usize = held.iter().map(Vec::len).sum();
    cx.record("connections while it was replaced", connections.to_string());
    Ok(())
}
