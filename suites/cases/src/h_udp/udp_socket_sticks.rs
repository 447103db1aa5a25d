//! `udp-socket-sticks`: 100 datagrams of one unconnected UDP socket to one frontend, 10 a second, reach one backend as
//! long as it serves; 20 new sockets reach at least two of three backends. From pods and hosts to the ClusterIP, where
//! socket programs may choose, and from outside to the node port, where only packet programs can.
//!
//! An endpoint that is added meanwhile serves new sockets, which is the witness, and answers none that sent before.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    flows::Flows,
    frontends::{self, Frontends, permitting},
    names::Key,
    pods::endpoints,
    probing::{self, identities},
    udp_stickiness,
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};
use oracle::{check::Permitted, history::Transport};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "udp-socket-sticks",
    area: super::AREA,
    claims: &["udp-socket-sticks"],
    sentence: "the datagrams of one unconnected UDP socket reach one backend, while endpoints are added",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("udp_socket_sticks.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::from_secs(10),
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// Sockets of each client that send without a pause, to each frontend, and datagrams of each that decide.
const SOCKETS: u32 = 4;
const DATAGRAMS: u32 = 100;
/// New sockets of each client, and the fewest backends that they reach.
const FRESH: usize = 20;
const FEWEST: usize = 2;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with three of four backends");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["b1", "b2", "b3", "added"], &[], &[TARGET]).await?;
    let by = |backends| identities(backends, Transport::Udp, TARGET);
    let (mut dialled, mut services) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let service = format!("sticky-{family}").to_lowercase();
        let endpoints = endpoints(&all[..3], family)?;
        let values = json!({ "namespace": namespace, "service": service, "endpoints": endpoints });
        let made = Frontends::create(cx, family, values).await?;
        let [cip, np] = ["cip", "np"].map(|kind| format!("{family}, {kind}"));
        let inside = made.at_cluster_ip(&cip, Transport::Udp, PORT, &by(&all[..3]));
        let outside = made.at_nodes(cx, &np, Transport::Udp, &by(&all[..3]))?;
        dialled.extend(frontends::vantages(cx, vec![inside], outside));
        services.push(made);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let any = Permitted::ServesOneOf(by(&all[..3]));
    for (clients, targets) in &dialled {
        probing::control(cx, "it serves", clients, &permitting(targets, &any), within).await?;
    }
    dialled.retain(|(_, targets)| cx.axes().is_open(&targets[0].axis));

    cx.phase("sockets begin to send, and fresh ones spread");
    let mut flows = Flows::none();
    for (clients, targets) in &dialled {
        let each = SOCKETS * u32::try_from(clients.len()).unwrap_or(1);
        let within = Within::from_now(cx.limits().endpoints);
        flows = flows.and(Flows::open(cx, clients, targets, each, within).await?);
    }
    for (clients, targets) in &dialled {
        udp_stickiness::judge_spread(cx, clients, targets, FRESH, FEWEST).await?;
    }

    cx.phase("an endpoint is added, and serves fresh sockets");
    for made in &services {
        let slice = Key::slice(&namespace, &made.service.name);
        let endpoints = json!({ "endpoints": endpoints(&all, made.family)? });
        cx.objects().patch(&slice, endpoints).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    let grown = Permitted::Serves(by(&all));
    for (clients, targets) in dialled.iter().filter(|(_, of)| cx.axes().is_open(&of[0].axis)) {
        let grown = permitting(targets, &grown);
        let (effect, what) = (Effect::Listed, "the added endpoint serves");
        write_effect::takes_effect(cx, effect, what, clients, &grown, within).await?;
    }

    cx.phase("verdict: each socket has one backend, and never the added one");
    let window = cx.limits().hold.max(cx.limits().exchange * DATAGRAMS);
    let attempts = flows.hold(cx, window).await?;
    for (clients, targets) in &dialled {
        udp_stickiness::judge_sticking(cx, clients, targets, &attempts, SOCKETS, DATAGRAMS);
    }
    Ok(())
}
