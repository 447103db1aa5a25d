//! Load balancers as multipath routes: of a router to the nodes behind each address.
//!
//! In a lab the router is the bridge, the default gateway of all machines: it forwards packets for such an address,
//! from the outside client or from a node that does not translate it, to a node. An address without nodes is a
//! blackhole.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use lab_controllers::Routes;
use tokio::{sync::watch, time::sleep};

use super::{LabError, backoff::Backoff, links::Links};

/// Addresses of nodes by their names.
pub type Nodes = BTreeMap<String, Vec<IpAddr>>;

/// A router that forwards packets for load balancers through one link.
#[derive(Clone, Debug)]
pub struct Router {
    links: Links,
    link: u32,
}

impl Router {
    /// `link` is the index of a link in the network namespace of `links`.
    pub fn new(links: Links, link: u32) -> Self {
        Self { links, link }
    }

    /// Routes an address to all of these gateways, chosen by connection; without a gateway, to a blackhole.
    ///
    /// # Errors
    /// The kernel refuses the route.
    pub async fn spread(&self, address: IpAddr, gateways: &[IpAddr]) -> Result<(), LabError> {
        if gateways.is_empty() {
            return self.links.unroute(address.into()).await;
        }
        self.links.spread(address.into(), self.link, gateways).await
    }
}

/// Applies the wanted routes, and tries refused ones again.
pub async fn follow(router: Router, nodes: Nodes, ours: Vec<IpNet>, mut wanted: watch::Receiver<Routes>) {
    let mut present = Routes::new();
    loop {
        let mut backoff = Backoff::writes();
        loop {
            let mut newest = wanted.borrow_and_update().clone();
            // Every user may write a Service's status; addresses outside these ranges get no route.
            newest.retain(|address, _| ours.iter().any(|range| range.contains(address)));
            match change(&router, &nodes, &mut present, &newest).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(%error, "a load balancer could not be routed to its nodes");
                    sleep(backoff.wait()).await;
                }
            }
        }
        if wanted.changed().await.is_err() {
            // The controller has ended, which its own task reports.
            return std::future::pending().await;
        }
    }
}

/// Applies the differences. A refused route does not stop the others; the first refusal is returned.
async fn change(
    router: &Router,
    nodes: &Nodes,
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
            .filter(|(name, _)| behind.is_some_and(|behind| behind.contains(*name)))
            .flat_map(|(_, addresses)| addresses)
            .filter(|gateway| gateway.is_ipv4() == address.is_ipv4())
            .copied()
            .collect();
        if let Err(error) = router.spread(address, &gateways).await {
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use crate::{IpFamilies, stale_connections::expect_ended, underlay::Underlay};

    #[tokio::test]
    async fn the_end_of_an_unknown_connection_takes_the_route_it_began_on() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        for families in [IpFamilies::Ipv4, IpFamilies::Ipv6] {
            let underlay = Underlay::create(families).await.expect("a bridge");
            let client = underlay.machine("outside", &families.outside()).await;
            let client = client.expect("a client");
            let address = families.load_balancers()[0].hosts().nth(6).expect("an address");
            let (mut nodes, mut listeners, mut gateways) = (Vec::new(), Vec::new(), Vec::new());
            for number in [1, 2] {
                let own = families.api_server(number);
                let node = underlay.machine(&format!("node{number}"), &own).await;
                let node = node.expect("a node");
                let links = node.links().expect("its links");
                let lo = links.index("lo").await.expect("a link");
                links.address(lo, address.into()).await.expect("an address");
                let listener = node.listen((address, 80).into()).expect("a listener");
                listener.set_nonblocking(true).expect("so");
                listeners.push(TcpListener::from_std(listener).expect("a listener"));
                gateways.extend(own);
                nodes.push(node);
            }
            let router = underlay.router();
            router.spread(address, &gateways).await.expect("a route");
            expect_ended(&client, (address, 80).into(), [&listeners[0], &listeners[1]]).await;
        }
    }
}
