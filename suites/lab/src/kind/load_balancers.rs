//! Load balancers: a controller that gives Services of type LoadBalancer their addresses, and the outside client's routes to the
//! nodes behind each.
//!
//! ```text
//!  Services ─▶ Balancer ─▶ status, finalizer ─▶ agents
//!      └─────▶ route ─▶ follow ─▶ routes of the outside client: an address ─▶ its nodes, by turns of connections
//!                                 the rest of the range ─▶ a link that takes everything and tells nobody
//! ```
//!
//! They live in the process that holds the cluster's lock, so that there is one of them. When that lets go of a cluster that
//! stays, Services give back what they have; where it was killed, the next that holds the lock goes on, or `plumbline heal`
//! takes it back. From nodes and pods an address leads where the agents say; what they do not translate ends at the outside
//! client, as it does for ClusterIPs.

use std::{fs, io, path::Path};

use ipnet::IpNet;
use kube::Client;
use lab_controllers::{Balancer, Routes, others, route, take_back};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{KindError, LIMITS, beside::DebugClient, containers::Container, error::api_error};
use crate::embedded::{LabError, NetNs, Nodes, Router, Via, follow};

/// The outside client's link in the network of the nodes, and the one where addresses end that lead to no node.
const LINK: &str = "eth0";
const NOWHERE: &str = "nowhere";
/// Whether links of the namespace of who looks have no IPv6 when they are made (`Documentation/networking/ip-sysctl.rst`).
const DISABLE_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// They give addresses as long as this lives.
#[derive(Debug)]
pub(super) struct LoadBalancers {
    client: DebugClient,
    router: Router,
    wanted: watch::Receiver<Routes>,
    tasks: Mutex<JoinSet<()>>,
}

impl LoadBalancers {
    /// Starts them. `outside` is the namespace of a client that has been started anew.
    pub(super) async fn start(
        client: Client,
        pool: Vec<IpNet>,
        nodes: &[Container],
        outside: &NetNs,
    ) -> Result<Self, KindError> {
        let router = lead(outside, &pool).await.map_err(|error| unexpected(&error))?;
        let addresses = |node: &Container| (node.name.clone(), node.addresses.clone());
        let nodes: Nodes = nodes.iter().map(addresses).collect();
        // Nobody cancels them: they end as tasks do.
        let stop = CancellationToken::new();
        let (routes, wanted) = watch::channel(Routes::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(Balancer::new(client.clone(), pool.clone()).run(stop.clone()));
        tasks.spawn(route(client.clone(), routes, stop));
        tasks.spawn(follow(router.clone(), nodes, pool, wanted.clone()));
        Ok(Self {
            client: DebugClient(client),
            router,
            wanted,
            tasks: Mutex::new(tasks),
        })
    }

    /// Ends them: Services give their addresses back, and nothing leads there any more.
    pub(super) async fn end(&self) -> Result<(), KindError> {
        self.tasks.lock().await.shutdown().await;
        let addresses: Vec<_> = self.wanted.borrow().keys().copied().collect();
        for address in addresses {
            self.router
                .spread(address, &[])
                .await
                .map_err(|error| unexpected(&error))?;
        }
        give_back(&self.client.0, None).await.map(drop)
    }
}

/// Takes back what a controller that is gone has given to Services of a namespace, or of all, and the finalizer that would keep
/// them. Returns whose, in words.
///
/// # Errors
/// The API refuses it, or does not answer.
pub async fn give_back(client: &Client, namespace: Option<&str>) -> Result<Vec<String>, KindError> {
    let what = "take the addresses of Services of type LoadBalancer back";
    let taken = timeout(LIMITS.give_back, take_back(client, namespace)).await;
    let taken = taken
        .map_err(|_| KindError::Unexpected {
            what: what.to_owned(),
            why: format!("the API had not answered all of it within {:?}", LIMITS.give_back),
        })?
        .map_err(api_error(what))?;
    let words = |(namespace, name)| {
        format!(
            "the Service {namespace}/{name} had a load balancer of a run that is dead, and has none any more"
        )
    };
    Ok(taken.into_iter().map(words).collect())
}

/// Refuses a cluster where somebody else gives addresses.
pub(super) async fn expect_alone(client: &Client, cluster: &str) -> Result<(), KindError> {
    let found = timeout(LIMITS.request, others(client)).await;
    let found = found
        .map_err(|_| KindError::Unexpected {
            what: "list the Services".to_owned(),
            why: format!("the API had not answered within {:?}", LIMITS.request),
        })?
        .map_err(api_error("list the Services"))?;
    match found {
        None => Ok(()),
        Some(((namespace, name), addresses)) => Err(KindError::Balanced {
            name: cluster.to_owned(),
            service: format!("{namespace}/{name}"),
            addresses: addresses.join(", "),
        }),
    }
}

/// Lets the whole of the ranges end in silence at the outside client, so that what leads to no node leaves it by no other way.
async fn lead(outside: &NetNs, pool: &[IpNet]) -> Result<Router, LabError> {
    outside.inside(let_ipv6).map_err(|error| LabError::Io {
        what: "let links of the outside client have IPv6".to_owned(),
        error,
    })?;
    let links = outside.links()?;
    let nowhere = links.silence(NOWHERE, outside.file()).await?;
    for range in pool {
        links.route(*range, Via::Link(nowhere, None)).await?;
    }
    let link = links.index(LINK).await?;
    Ok(Router::new(links, link))
}

/// Lets links have IPv6 that are made in the namespace of this thread: Docker lets only those that it has made itself, and gives
/// others the default that they have none.
fn let_ipv6() -> io::Result<()> {
    let default = Path::new(DISABLE_IPV6);
    // A kernel may have no IPv6.
    if default.exists() {
        fs::write(default, "0")?;
    }
    Ok(())
}

fn unexpected(error: &LabError) -> KindError {
    KindError::Unexpected {
        what: "lead the outside client to load balancers".to_owned(),
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const RANGES: [&str; 2] = ["198.18.0.0/24", "2001:2::/112"];

    /// Two machines with a link between them; the second has an address of each range, and listens there.
    async fn machines() -> (NetNs, Vec<SocketAddr>, Vec<TcpListener>) {
        let settings = vec![("ipv6/conf/default/accept_dad", "0")];
        let (outside, links) = NetNs::create(&settings).await.expect("a namespace");
        let (node, far) = NetNs::create(&settings).await.expect("a namespace");
        links.veth(LINK, None, LINK, node.file()).await.expect("a link");
        for (links, last) in [(&links, 1), (&far, 2)] {
            let link = links.up(LINK).await.expect("a link");
            for address in [format!("172.18.0.{last}/24"), format!("fd00::{last}/64")] {
                let address = address.parse().expect("an address");
                links.address(link, address).await.expect("an address");
            }
        }
        let lo = far.index("lo").await.expect("a link");
        // As Docker leaves its containers.
        let as_docker = outside.inside(|| fs::write(DISABLE_IPV6, "1"));
        as_docker.expect("a setting");
        let (mut addresses, mut listeners) = (Vec::new(), Vec::new());
        for address in ["198.18.0.7", "2001:2::7"] {
            let address: std::net::IpAddr = address.parse().expect("an address");
            far.address(lo, address.into()).await.expect("an address");
            let listener = node.listen((address, 80).into()).expect("a listener");
            listener.set_nonblocking(true).expect("so");
            listeners.push(TcpListener::from_std(listener).expect("a listener"));
            addresses.push((address, 80).into());
        }
        (outside, addresses, listeners)
    }

    /// What comes of a connection; `None`: nothing within a second, as where nobody is told anything.
    async fn connect(from: &NetNs, to: SocketAddr) -> Option<io::Result<TcpStream>> {
        let runtime = tokio::runtime::Handle::current();
        let socket = from.inside(|| {
            let _reactor = runtime.enter();
            match to {
                SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
                SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
            }
        });
        let connecting = socket.expect("a socket").connect(to);
        timeout(Duration::from_secs(1), connecting).await.ok()
    }

    #[tokio::test]
    async fn an_address_leads_to_its_nodes_and_without_any_to_silence() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        let (outside, addresses, _listeners) = machines().await;
        let pool = RANGES.map(|range| range.parse().expect("a range"));
        let router = lead(&outside, &pool).await.expect("routes");
        for (address, node) in addresses.into_iter().zip(["172.18.0.2", "fd00::2"]) {
            for _ in 0..2 {
                let nobody = connect(&outside, address).await;
                assert!(nobody.is_none(), "{address}: {nobody:?}");
                let node = node.parse().expect("an address");
                router.spread(address.ip(), &[node]).await.expect("a route");
                let led = connect(&outside, address).await;
                assert!(matches!(led, Some(Ok(_))), "{address}: {led:?}");
                router.spread(address.ip(), &[]).await.expect("no route");
            }
        }
    }
}
