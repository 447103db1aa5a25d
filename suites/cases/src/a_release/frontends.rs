//! Every frontend of the victim: its ClusterIP, its node port on every node, and its load balancer address, from inside
//! and from outside.
//!
//! For clients on nodes and in pods a socket program may translate. So node ports and load balancer addresses are
//! dialled from outside too, where only packet programs can.

use std::net::SocketAddr;

use harness::{
    agents,
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, balancers, node_port},
    probing,
    verdict::Halt,
    waiting::{Within, eventually},
    write_effect::Effect,
};
use oracle::check::Permitted;

use super::{
    holders::{Hold, Holder, all_serve, probed_by, trigger, undisturbed, witnessed},
    pairs::{Pair, pairs, victims},
};

/// Which frontends are dialled in addition to the ClusterIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum External {
    NodePort,
    LoadBalancer,
}

/// Empties the culprit, and judges every frontend of the victim after the trigger.
pub(super) async fn all_frontends(cx: &Context, external: External) -> Result<(), Halt> {
    let mut pairs = pairs(cx, &[((), "")]).await?;
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;
    let mut outside = Vec::new();
    for victim in victims(&pairs) {
        outside.extend(frontends(cx, victim, external).await?);
    }
    let cluster_ips = victims(&pairs).into_iter().flat_map(Holder::serves);
    let inside: Vec<Destination> = cluster_ips.chain(outside.iter().cloned()).collect();
    // Each client with its targets: no ClusterIP from outside.
    let mut vantages: Vec<(Vec<Client>, &[Destination])> = vec![(cx.clients().to_vec(), &inside)];
    vantages.extend(cx.clients().outside().map(|client| (vec![client], &*outside)));
    cx.phase("control: every frontend serves its backends");
    fence::pass(cx).await?;
    for (clients, targets) in &vantages {
        let within = Within::from_now(cx.limits().service);
        probing::control(cx, "every frontend serves {b}", clients, targets, within).await?;
    }

    cx.phase("release: the culprit is emptied");
    let mut seen = Vec::new();
    for pair in &mut pairs {
        pair.culprit.list(cx, &[]).await?;
        seen.push(pair.culprit.refuses());
    }
    witnessed(cx, (Effect::Emptied, "the culprit refuses"), &seen).await?;

    cx.phase("trigger: the victim is patched, and every frontend must serve its backends for the hold time");
    let mut windows = Vec::new();
    for (clients, targets) in &vantages {
        windows.push(probed_by(cx, clients, targets, Hold::Time).await?);
    }
    trigger(cx, "1", victims(&pairs)).await?;
    futures::future::try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;
    undisturbed(cx, victims(&pairs), agents.as_ref()).await
}

/// Frontends of a Service for clients outside, once it has them.
async fn frontends(cx: &Context, holder: &Holder, external: External) -> Result<Vec<Destination>, Halt> {
    let what = format!("{} has its {external:?}", holder.service);
    let within = Within::from_now(cx.limits().service);
    let service = eventually(&what, within, async || {
        let service = cx.objects().get(&holder.service).await?;
        let is_there = match external {
            External::NodePort => node_port(&service, "TCP").is_some(),
            External::LoadBalancer => !balancers(&service, holder.family).is_empty(),
        };
        Ok(is_there.then_some(service))
    })
    .await?;
    let mut targets = Vec::new();
    for cluster_ip in holder.serves() {
        let Permitted::Serves(identities) = &cluster_ip.permitted else {
            continue;
        };
        let addresses: Vec<(String, SocketAddr)> = match external {
            External::NodePort => {
                let protocol = oracle::finding::transport(cluster_ip.transport);
                let port = node_port(&service, protocol).ok_or_else(|| {
                    Halt::Harness(format!("{} has no node port of {protocol}", holder.service))
                })?;
                frontends::node_addresses(cx, holder.family)
                    .into_iter()
                    .map(|(node, address)| (format!("np {node}"), (address, port).into()))
                    .collect()
            }
            External::LoadBalancer => balancers(&service, holder.family)
                .into_iter()
                .map(|address| ("lb".to_owned(), (address, cluster_ip.address.port()).into()))
                .collect(),
        };
        for (name, address) in addresses {
            let name = format!("{} {name}", cluster_ip.name);
            targets.push(Destination::serves(
                &holder.axis,
                &name,
                cluster_ip.transport,
                address,
                identities.iter().cloned(),
            ));
        }
    }
    Ok(targets)
}
