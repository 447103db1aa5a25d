//! `udp-deleted-no-misdelivery`: a Service is deleted while sockets send through it without a pause and without an answer,
//! and its backend's address passes to another pod, of another Service. From the Service propagation limit on, that pod
//! gets none of their datagrams.
//!
//! The address is moved from pod to pod by the case. That the new pod gets what is sent to the address is seen first.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence, pod_addresses,
    pods::serve,
    probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

use super::staging::{Frontend, Senders, Service, TARGET, Talk};

pub(crate) const CASE: Case = Case {
    id: "udp-deleted-no-misdelivery",
    area: super::AREA,
    claims: &["udp-deleted-no-misdelivery"],
    sentence: "datagrams to a deleted Service never reach the pod that has got its backend's address",
    tier: Tier::Core,
    features: &[],
    // An address of a pod is moved on its node.
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::HostNetwork],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const THROUGH: [Frontend; 2] = [Frontend::ClusterIp, Frontend::NodePorts];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service, another one, and sockets that send through the first");
    let namespace = cx.namespace().await?;
    let pod = |name: &str| {
        let args = serve(name, &namespace, &[], &[TARGET]);
        json!({ "name": name, "namespace": namespace, "node": cx.nodes()[0], "args": args })
    };
    let pods = cx.backends(&[pod("former"), pod("new")]).await?;
    let (former, new) = (&pods[..1], &pods[1]);
    let mut services = Vec::new();
    for family in cx.families() {
        // This Service lists the address throughout, so that the agent has a reason to keep the backend.
        Service::create(cx, family, (&namespace, "other"), &[], former).await?;
        services.push(Service::create(cx, family, (&namespace, "deleted"), &THROUGH, former).await?);
    }
    fence::pass(cx).await?;
    let mut senders = Senders::none();
    for service in &services {
        let dialled = service.dialled(cx, &THROUGH, Talk::OneWay, "").await?;
        senders = senders.and(cx, dialled, Talk::OneWay, 1).await?;
    }
    let (flows, within) = (senders.flows(), Within::from_now(cx.limits().service));
    let served = senders.reaching(former);
    flows
        .control(cx, "the backend gets all datagrams", &served, within)
        .await?;

    cx.phase("fault: the Service is deleted, and its backend's address passes to another pod");
    for service in &services {
        cx.objects().delete(&service.made.service).await?;
    }
    let within = Within::from_now(cx.limits().service);
    pod_addresses::pass(cx, &cx.families(), &former[0], new).await?;
    let mut itself = Vec::new();
    for family in cx.families() {
        let address = (former[0].address(family)?, TARGET).into();
        let by = [new.identity(Transport::Udp, TARGET)];
        for frontend in ["cip", "np"] {
            let axis = format!("{family}, {frontend}, one way");
            itself.push(Destination::serves(
                &axis,
                "the address",
                Transport::Udp,
                address,
                by.clone(),
            ));
        }
    }
    let clients = cx.clients().in_pods();
    probing::witness(cx, "the new pod has the address", &clients, &itself, within).await?;
    fence::pass(cx).await?;

    cx.phase("verdict: the new pod gets none of the sockets' datagrams");
    flows.come_to(cx, &senders.reaching(&[]), within).await
}
