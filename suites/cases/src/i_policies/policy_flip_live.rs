//! `policy-flip-live`: a traffic policy that is changed counts for new connections within the Service propagation
//! limit, and cuts no established TCP connection, though the new policy would leave it no backend: from `Cluster` to
//! `Local` and back, the internal policy at the ClusterIP and the external one at node ports.
//!
//! All Services change at once. Connections are opened before, and last to the end of the hold time.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    own_targets::OwnTargets,
    policies::Policies,
    verdict::Halt,
    waiting::Within,
};
use oracle::{check::Permitted, history::Transport};

use super::staging::{self, Kind, On, Staged};

pub(crate) const CASE: Case = Case {
    id: "policy-flip-live",
    area: super::AREA,
    claims: &["policy-flip-live"],
    sentence: "a traffic policy that changes counts for new connections, and cuts no established one",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("policies.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Begins the name of a Service, its policies before and after, where its backends are, and the frontends that the
/// change is about.
const FLIPS: [(&str, [Policies; 2], On, Kind); 6] = [
    (
        "in-far",
        [Policies::CLUSTER, Policies::INTERNAL],
        On::FirstNode,
        Kind::ClusterIp,
    ),
    (
        "in-near",
        [Policies::CLUSTER, Policies::INTERNAL],
        On::EveryNode,
        Kind::ClusterIp,
    ),
    (
        "in-back",
        [Policies::INTERNAL, Policies::CLUSTER],
        On::FirstNode,
        Kind::ClusterIp,
    ),
    (
        "ex-far",
        [Policies::CLUSTER, Policies::EXTERNAL],
        On::FirstNode,
        Kind::NodePorts,
    ),
    (
        "ex-near",
        [Policies::CLUSTER, Policies::EXTERNAL],
        On::EveryNode,
        Kind::NodePorts,
    ),
    (
        "ex-back",
        [Policies::EXTERNAL, Policies::CLUSTER],
        On::FirstNode,
        Kind::NodePorts,
    ),
];
/// Connections of each client to each frontend that serves it.
const CONNECTIONS: u32 = 2;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with policies Cluster, and with one of them Local");
    let rows = FLIPS.map(|(name, [before, _], on, _)| (name, before, on));
    let mut services = staging::services(cx, Kind::NodePorts, &rows).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("control: each client gets what the policies leave to it, and opens connections");
    let before = dialled(cx, &services)?;
    // Whether `Local` leaves none counts before the change, too, is for other claims.
    let before = before.only(|target| target.permitted != Permitted::None);
    before.control(cx, "the frontend serves", within).await?;
    let mut flows = Flows::none();
    for (client, targets) in before.only(|target| target.transport == Transport::Tcp).iter() {
        let within = Within::from_now(cx.limits().endpoints);
        let clients = std::slice::from_ref(client);
        flows = flows.and(Flows::open(cx, clients, targets, CONNECTIONS, within).await?);
    }

    cx.phase("fault: the policies change");
    for service in &mut services {
        let flip = FLIPS.iter().find(|(name, ..)| service.is(name));
        if let Some((_, [_, after], ..)) = flip {
            service.flip(cx, *after).await?;
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: new connections follow, and established ones go on for the hold time");
    let after = dialled(cx, &services)?;
    let (attempts, _) = futures::try_join!(after.hold(cx, within), flows.hold(cx, cx.limits().hold))?;
    after.record_unserved(cx, &attempts);
    Ok(())
}

/// What clients inside dial of ClusterIPs, and the client outside of node ports.
fn dialled(cx: &Context, services: &[Staged]) -> Result<OwnTargets, Halt> {
    let outside: Vec<Client> = cx.clients().outside().into_iter().collect();
    let of = |kind: Kind, clients: &[Client]| {
        let is_about = |target: &Destination| {
            let flip = FLIPS.iter().find(|(name, ..)| target.name.starts_with(name));
            flip.is_some_and(|(.., about)| *about == kind)
        };
        Ok::<_, Halt>(
            staging::dialled(cx, services, kind, clients)?
                .only(is_about)
                .map(new_flows),
        )
    };
    Ok(of(Kind::ClusterIp, cx.clients())?.and(&of(Kind::NodePorts, &outside)?))
}

/// Datagrams from a port that was answered before go on with that flow, which its new policy need not end: where one
/// backend is left, such a port is left out of what decides.
fn new_flows(target: Destination) -> Destination {
    match &target.permitted {
        Permitted::Serves(by) if target.transport == Transport::Udp && by.len() == 1 => Destination {
            permitted: Permitted::ServesOneOf(by.clone()),
            ..target
        },
        _ => target,
    }
}
