//! `udp-fragments`: UDP datagrams of 4,000 bytes arrive whole in both directions through ClusterIP and node port, at
//! least 99 % of N, and the fragments of answers come from the frontend that those of requests were sent to.
//! `udp-fragments-reordered`: requests whose first fragment is not sent first, in both families.
//!
//! From pods and hosts as sockets send them; from pods and outside, whose devices show fragments, also by raw sockets,
//! with time between two fragments: no socket program translates those, so that only packet programs can. A host's own
//! IP stack does not reorder.
use std::time::Duration;

use cluster::{Capability, Place};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence, fragments,
    frontends::{self, Frontends, Vantage},
    lasting_sockets::Sockets,
    pods::endpoints,
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "udp-fragments",
    area: super::AREA,
    claims: &["udp-fragments"],
    sentence: "datagrams of 4,000 bytes arrive whole both ways, and fragments of answers come from the frontend",
    tier: Tier::Core,
    features: &["fragments"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::RawSockets],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("udp_fragments.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, &[AS_SOCKETS_SEND, &[0, 1, 2, 3]])),
};
pub(crate) const REORDERED: Case = Case {
    id: "udp-fragments-reordered",
    sentence: "datagrams of 4,000 bytes arrive whole whose first fragment does not arrive first",
    features: &["fragments", "fragments-reordered"],
    run: |cx| Box::pin(run(cx, &[&[3, 2, 1, 0], &[1, 0, 2, 3], &[2, 0, 3, 1]])),
    ..CASE
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// Bytes of a request, and of its answer.
const BYTES: u16 = 4000;
/// As the order of fragments: the kernel fragments the datagram.
const AS_SOCKETS_SEND: &[u8] = &[];

async fn run(cx: &Context, orders: &[&[u8]]) -> Result<(), Halt> {
    let dialled = stage(cx).await?;
    for &order in orders {
        cx.phase(&format!(
            "verdict: all are whole, of fragments in the order {order:?}"
        ));
        let is_raw = !order.is_empty();
        for (clients, targets) in &dialled {
            let sends = |client: &&Client| !is_raw || !matches!(client.place, Place::Host { .. });
            let clients: Vec<Client> = clients.iter().filter(sends).cloned().collect();
            for target in targets.iter().filter(|target| cx.axes().is_open(&target.axis)) {
                let name = format!("{}, order {order:?}", target.name);
                let target = Destination {
                    name,
                    ..target.clone()
                };
                let mut sockets = Sockets::keep(cx, &clients).await?;
                fragments::judge(cx, &mut sockets, &target, BYTES, order).await?;
            }
        }
    }
    Ok(())
}

/// A Service of each family, and its frontends; all of them serve.
async fn stage(cx: &Context) -> Result<Vec<Vantage>, Halt> {
    cx.phase("staging: a Service of one backend");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[], &[TARGET]).await?;
    let by = identities(&backends, Transport::Udp, TARGET);
    let mut dialled = Vec::new();
    for family in cx.families() {
        let service = format!("large-{family}").to_lowercase();
        let endpoints = endpoints(&backends, family)?;
        let values = json!({ "namespace": namespace, "service": service, "endpoints": endpoints });
        let made = Frontends::create(cx, family, values).await?;
        let [cip, np] = ["cip", "np"].map(|kind| format!("{family}, {kind}"));
        let outside = made.at_nodes(cx, &np, Transport::Udp, &by)?;
        let mut inside = vec![made.at_cluster_ip(&cip, Transport::Udp, PORT, &by)];
        inside.extend(outside.clone());
        dialled.extend(frontends::vantages(cx, inside, outside));
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in &dialled {
        probing::control(cx, "it serves small datagrams", clients, targets, within).await?;
    }
    Ok(dialled)
}
