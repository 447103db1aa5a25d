//! `service-without-selector`: Services without a selector serve the addresses of their hand-written EndpointSlices, from
//! pods on every node and from hosts: a pod's, and that of a machine outside of the cluster.
//!
//! The machine outside sees the connection and answers with its own identity. Its endpoint names no node. Whether packets
//! of pods find their way back from such a machine is a matter of the cluster's network: where pods don't reach it at its
//! own address, hosts alone decide.
use std::time::Duration;

use cluster::{Family, Place};
use futures::future::try_join_all;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    host_servers::{self, Server},
    pods::endpoints,
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::{Outcome, Transport};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "service-without-selector",
    area: super::AREA,
    claims: &["service-without-selector"],
    sentence: "a Service without a selector serves what its EndpointSlice lists: a pod, a machine outside of the cluster",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("service_without_selector.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::UdpConnected];

/// A Service, and its only endpoint at its own address.
struct Staged {
    served: Vec<Destination>,
    direct: Vec<Destination>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services of a pod, and of a machine outside");
    let namespace = cx.namespace().await?;
    let pods = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let port = cx.host_port();
    let machine = match cx.clients().outside() {
        Some(client) => {
            let name = format!("machine.{namespace}");
            Some((client, Server::start(cx, &Place::Outside, &name, port).await?))
        }
        None => None,
    };
    let (mut of_pod, mut of_machine) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let axis = format!("{family}, pod");
        let mut direct = Vec::new();
        for transport in TRANSPORTS {
            let address = (pods[0].address(family)?, TARGET).into();
            let by = identities(&pods, transport, TARGET);
            direct.push(Destination::serves(&axis, "pod itself", transport, address, by));
        }
        let endpoints = endpoints(&pods, family)?;
        of_pod.push(stage(cx, &namespace, family, (endpoints, TARGET), direct).await?);
        let axis = format!("{family}, machine");
        let Some((client, server)) = &machine else {
            cx.axes().not_enabled(&axis, "the cluster has no machine outside");
            continue;
        };
        let address = host_servers::address_of(cx, client, family).await?;
        let direct = TRANSPORTS
            .map(|transport| server.at(&axis, transport, address))
            .to_vec();
        let endpoints = json!([{ "addresses": [address], "conditions": { "ready": true } }]);
        of_machine.push(stage(cx, &namespace, family, (endpoints, port), direct).await?);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let to_machine = reaching(cx, &of_machine).await?;
    let dialled = [(cx.clients().to_vec(), of_pod), (to_machine, of_machine)];

    cx.phase("control: the endpoints answer at their own addresses");
    for (clients, staged) in dialled.iter().filter(|(_, staged)| !staged.is_empty()) {
        let direct: Vec<Destination> = staged.iter().flat_map(|one| one.direct.clone()).collect();
        probing::control(cx, "the endpoints answer", clients, &direct, within).await?;
    }
    cx.phase("verdict: they are served");
    for (clients, staged) in dialled.iter().filter(|(_, staged)| !staged.is_empty()) {
        let served: Vec<Destination> = staged.iter().flat_map(|one| one.served.clone()).collect();
        probing::judge(cx, clients, &served, within).await?;
    }
    Ok(())
}

/// A Service of this endpoint and its port, and how it is dialled.
async fn stage(
    cx: &Context,
    namespace: &str,
    family: Family,
    (endpoints, target): (Value, u16),
    direct: Vec<Destination>,
) -> Result<Staged, Halt> {
    let values = json!({
        "namespace": namespace, "service": format!("of-{target}-{family}").to_lowercase(), "family": family.to_string(),
        "endpoints": endpoints, "target": target,
    });
    let made = Frontends::create(cx, family, values).await?;
    let through = |direct: &Destination| Destination {
        name: "cip".to_owned(),
        address: (made.cluster_ip, PORT).into(),
        ..direct.clone()
    };
    Ok(Staged {
        served: direct.iter().map(through).collect(),
        direct,
    })
}

/// Hosts, and pods too if one of them reaches the machine at its own address.
async fn reaching(cx: &Context, of_machine: &[Staged]) -> Result<Vec<Client>, Halt> {
    let direct: Vec<Destination> = of_machine.iter().flat_map(|one| one.direct.clone()).collect();
    if direct.is_empty() {
        return Ok(Vec::new());
    }
    let pods = cx.clients().in_pods();
    let attempts = pods.iter().map(|pod| probing::probe_briefly(cx, pod, &direct));
    let attempts = try_join_all(attempts).await?.concat();
    if attempts
        .iter()
        .any(|attempt| matches!(attempt.outcome, Outcome::Answered { .. }))
    {
        return Ok(cx.clients().to_vec());
    }
    cx.axes().not_enabled(
        "pods that dial a machine outside through a Service",
        "they get no answers from it at its own address, either: it has no route to pods",
    );
    Ok(cx.clients().on_hosts())
}
