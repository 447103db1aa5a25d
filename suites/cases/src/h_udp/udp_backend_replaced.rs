//! `udp-backend-replaced`: the only backend of a Service is replaced under sockets that send once a second, each from one
//! port: by one write, and by two of which the second removes the old one. Within the endpoint propagation limit all are
//! served by the new backend. The old one stays alive, and another Service keeps it.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence, frontends,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{Frontend, Senders, Service, TARGET, Talk};

pub(crate) const CASE: Case = Case {
    id: "udp-backend-replaced",
    area: super::AREA,
    claims: &["udp-backend-replaced"],
    sentence: "UDP sockets that never pause reach the backend that has replaced theirs, by one write or by two",
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
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const THROUGH: [Frontend; 2] = [Frontend::ClusterIp, Frontend::NodePorts];
/// Names of the Services, by how many writes replace their backend.
const WRITES: [&str; 2] = ["one-write", "two-writes"];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with one of two backends, and sockets that begin to send");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["old", "new"], &[], &[TARGET]).await?;
    let (old, new) = all.split_at(1);
    let mut services = Vec::new();
    for family in cx.families() {
        Service::create(cx, family, (&namespace, "keeps"), &[], old).await?;
        for writes in WRITES {
            let service = Service::create(cx, family, (&namespace, writes), &THROUGH, old).await?;
            services.push((writes, service));
        }
    }
    fence::pass(cx).await?;
    let mut senders = Senders::none();
    for (writes, service) in &services {
        let about = format!(", {writes}");
        let dialled = service.dialled(cx, &THROUGH, Talk::Answered, &about).await?;
        senders = senders.and(cx, dialled, Talk::Answered, 1).await?;
    }
    let (flows, within) = (senders.flows(), Within::from_now(cx.limits().service));
    let served = senders.reaching(old);
    flows
        .control(cx, "the old backend serves", &served, within)
        .await?;

    cx.phase("fault: the backend is replaced");
    for (_, service) in services.iter().filter(|(writes, _)| *writes == WRITES[1]) {
        service.list(cx, &all).await?;
    }
    fence::pass(cx).await?;
    for (_, service) in &services {
        service.list(cx, new).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: all sockets reach the new backend");
    flows.come_to(cx, &senders.reaching(new), within).await
}
