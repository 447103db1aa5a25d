//! The load balancers of the underlay: routes of the bridge to the nodes behind each address, all of which get a share.
//!
//! The bridge is everybody's default gateway: what is for such an address, from the outside client or from a node that
//! does not know it, is passed on to a node. An address with no node behind it answers with silence.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use lab_controllers::Routes;
use tokio::{sync::watch, time::sleep};

use super::{LabError, backoff::Backoff, node::Underlay, topology::NodeAddresses};

/// Keeps the bridge's routes as they should be; what the kernel refuses is tried again.
pub(super) async fn follow(
    underlay: Arc<Underlay>,
    nodes: Vec<NodeAddresses>,
    ours: Vec<IpNet>,
    mut wanted: watch::Receiver<Routes>,
) {
    let mut present = Routes::new();
    loop {
        let mut backoff = Backoff::writes();
        loop {
            let mut newest = wanted.borrow_and_update().clone();
            // Anybody may write a Service's status; the bridge routes no other address of the lab.
            newest.retain(|address, _| ours.iter().any(|range| range.contains(address)));
            match change(&underlay, &nodes, &mut present, &newest).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(%error, "a load balancer could not be routed to its nodes");
                    sleep(backoff.wait()).await;
                }
            }
        }
        if wanted.changed().await.is_err() {
            // Its controller has ended, which takes the lab down.
            return std::future::pending().await;
        }
    }
}

/// Changes what differs. A route that is refused keeps none of the others back; the first refusal is the answer.
async fn change(
    underlay: &Underlay,
    nodes: &[NodeAddresses],
    present: &mut Routes,
    wanted: &Routes,
) -> Result<(), LabError> {
    let all: BTreeSet<IpAddr> = present.keys().chain(wanted.keys()).copied().collect();
    let mut first = Ok(());
    for address in all {
        let behind = wanted.get(&address);
        if behind == present.get(&address) {
            continue;
        }
        let gateways: Vec<IpAddr> = nodes
            .iter()
            .filter(|node| behind.is_some_and(|behind| behind.contains(&node.name())))
            .flat_map(|node| node.internal())
            .filter(|gateway| gateway.is_ipv4() == address.is_ipv4())
            .collect();
        if let Err(error) = underlay.spread(address, &gateways).await {
            first = first.and(Err(error));
            continue;
        }
        match behind {
            Some(behind) => drop(present.insert(address, behind.clone())),
            None => drop(present.remove(&address)),
        }
    }
    first
}
