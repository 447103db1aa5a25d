//! `clusterip-from-pod`: from pods, with TCP and UDP, a ClusterIP serves exactly the ready endpoints; the backend sees
//! `targetPort` as its port; each of several Service ports reaches only its own target.
//!
//! No Service port equals its target, and each has another target: an implementation that does not translate ports, or
//! translates all to one, fails. The ready endpoints are spread over two EndpointSlices and all nodes, so that one that
//! keeps the last EndpointSlice fails too. An unready endpoint, alive and logging, is the trap.

use std::{net::SocketAddr, time::Duration};

use cluster::Family;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence, frontends, lasting_sockets,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "clusterip-from-pod",
    area: super::AREA,
    claims: &["clusterip-from-pod"],
    sentence: "from pods, a ClusterIP serves exactly the ready endpoints, each port its own target port",
    tier: Tier::Core,
    features: &[],
    // EndpointSlices are hand-written, so that there are several, and one endpoint stays unready.
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("clusterip_from_pod.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Transport, Service port and target port, as in the manifest.
const PORTS: [(Transport, u16, u16); 6] = [
    (Transport::Tcp, 7480, 8080),
    (Transport::Tcp, 7481, 9090),
    (Transport::Udp, 53, 5353),
    (Transport::Udp, 514, 5514),
    (Transport::UdpConnected, 53, 5353),
    (Transport::UdpConnected, 514, 5514),
];

/// Ports of the backends: targets, and Service ports too, so that a connection with its port unchanged is answered, by
/// the wrong identity.
const TCP: [u16; 4] = [8080, 9090, 7480, 7481];
const UDP: [u16; 4] = [5353, 5514, 53, 514];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: two EndpointSlices, one unready endpoint");
    let namespace = cx.namespace().await?;
    let (ready, trap) = backends(cx, &namespace).await?;
    for family in cx.families() {
        serves_ready(cx, family, &ready, &trap).await?;
    }
    Ok(())
}

async fn serves_ready(cx: &Context, family: Family, ready: &[Backend], trap: &Backend) -> Result<(), Halt> {
    let axis = family.to_string();
    let clients = cx.clients().in_pods();

    cx.phase("control: every backend, the trap too, answers at its own address");
    let mut direct = Vec::new();
    for backend in ready.iter().chain([trap]) {
        for (transport, _, target) in PORTS {
            let address = SocketAddr::new(backend.address(family)?, target);
            let name = format!("{} itself", backend.plain());
            direct.push(Destination::serves(
                &axis,
                &name,
                transport,
                address,
                [backend.identity(transport, target)],
            ));
        }
    }
    let within = Within::from_now(cx.limits().endpoints);
    probing::control(
        cx,
        "backends answer without the Service",
        &clients,
        &direct,
        within,
    )
    .await?;

    cx.phase("the Service");
    let namespace = cx.namespace().await?;
    let mut order = ready.to_vec();
    cx.shuffle(&mut order);
    let (first, second) = order.split_at(order.len() / 2);
    let mut second = endpoints(second, family)?;
    if let Value::Array(entries) = &mut second {
        entries.push(trap.endpoint(family, false)?);
    }
    // The other family's Service may be in this namespace, too.
    let service = format!("shop-{}", axis.to_lowercase());
    let values = json!({
        "namespace": namespace, "service": service, "family": axis, "first": endpoints(first, family)?, "second": second,
    });
    let vip = cx.apply_service("${service}", &values).await?;
    cx.apply("${service}-1", &values).await?;
    cx.apply("${service}-2", &values).await?;
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: each port serves exactly the ready endpoints");
    let shop: Vec<Destination> = PORTS
        .into_iter()
        .map(|(transport, port, target)| {
            let name = format!("shop:{port}");
            Destination::serves(
                &axis,
                &name,
                transport,
                (vip, port).into(),
                identities(ready, transport, target),
            )
        })
        .collect();
    let attempts = probing::judge(cx, &clients, &shop, within).await?;
    probing::trap_untouched(cx, &axis, &attempts, trap).await?;
    // `getpeername` and the source of replies are another claim.
    lasting_sockets::record_peers(cx, &axis, &attempts);
    Ok(())
}

/// Three ready backends and the trap, on all nodes in turn.
async fn backends(cx: &Context, namespace: &str) -> Result<(Vec<Backend>, Backend), Halt> {
    let mut backends = frontends::serving(cx, namespace, &["trap", "b1", "b2", "b3"], &TCP, &UDP).await?;
    let trap = backends.remove(0);
    Ok((backends, trap))
}
