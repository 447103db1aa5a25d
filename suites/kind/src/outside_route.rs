//! Routes of the outside client to load balancers.
//!
//! ```text
//!  client ─▶ router ─▶ the nodes behind an address, by turns of connections
//!    ▲                   │
//!    └───── answers ─────┘
//! ```
//!
//! The multipath routes are the router's, not the client's: a router chooses by the packet alone, so all packets of a
//! connection take one route. A sender chooses when the connection begins, since Linux 6.16 before it has a port, and
//! the RST for an unknown connection takes another route than its SYN.

use std::{fs, io, net::IpAddr, path::Path};

use ipnet::IpNet;
use lab::{BY_CONNECTION_IPV4, BY_CONNECTION_IPV6, LabError, NetNs, Router, Via, everything};

/// The link of a container in the nodes' network.
const LINK: &str = "eth0";

/// The client does not forward, and ignores redirects around the router.
pub(super) const CLIENT: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/eth0/accept_redirects", "0"),
    ("ipv6/conf/all/forwarding", "0"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/eth0/accept_redirects", "0"),
];
/// The router forwards, and chooses a node behind a load balancer by connection.
pub(super) const ROUTER: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/eth0/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/eth0/send_redirects", "0"),
    BY_CONNECTION_IPV4[0],
    BY_CONNECTION_IPV4[1],
    ("ipv6/conf/all/forwarding", "1"),
    BY_CONNECTION_IPV6[0],
    BY_CONNECTION_IPV6[1],
];

/// Writes settings below `/proc/sys/net` in a namespace.
pub(super) fn apply_settings(net: &NetNs, settings: &[(&str, &str)]) -> io::Result<()> {
    net.inside(|| {
        for (file, value) in settings {
            // procfs shows the namespace of the reading thread. The kernel may lack IPv6.
            let file = Path::new("/proc/sys/net").join(file);
            if file.exists() {
                fs::write(file, value)?;
            }
        }
        Ok(())
    })
}

/// Network namespaces of client and router, and the router's addresses.
#[derive(Debug)]
pub(super) struct OutsideRoute {
    pub(super) client: NetNs,
    pub(super) router: NetNs,
    pub(super) through: Vec<IpAddr>,
}

impl OutsideRoute {
    /// Routes these ranges from the client to the router, where they are blackholes. Returns the router, for routes
    /// of single addresses to nodes.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) async fn route_ranges(&self, ranges: &[IpNet]) -> Result<Router, LabError> {
        let (client, router) = (self.client.links()?, self.router.links()?);
        for through in &self.through {
            // Docker's default route leaves this host.
            router.route(everything(*through), Via::Blackhole).await?;
            for range in ranges {
                if range.addr().is_ipv6() == through.is_ipv6() {
                    client.route(*range, Via::Gateway(*through)).await?;
                }
            }
        }
        let link = router.index(LINK).await?;
        Ok(Router::new(router, link))
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use lab::stale_connections::{CONNECT_LIMIT, connect, expect_ended};
    use tokio::net::TcpListener;

    use super::*;

    /// A network of a client, a router and two nodes, which have a load balancer's address and listen there.
    struct Machines {
        route: OutsideRoute,
        nodes: Vec<IpAddr>,
        listeners: Vec<TcpListener>,
        address: SocketAddr,
        /// Keeps the network alive.
        _bridge: NetNs,
    }

    impl Machines {
        async fn create(is_ipv6: bool) -> Self {
            let of = |ipv4: &str, ipv6: &str| if is_ipv6 { ipv6 } else { ipv4 }.to_owned();
            let parse = |text: String| -> IpAddr { text.parse().expect("an address") };
            let address = parse(of("198.18.0.7", "2001:2::7"));
            // As Docker configures its containers.
            let settings = vec![("ipv6/conf/default/accept_dad", "0")];
            let (bridge, wire) = NetNs::create(&settings).await.expect("a namespace");
            let index = wire.bridge("wire").await.expect("a bridge");
            let (mut nets, mut listeners, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
            for last in 1..=4 {
                let (net, links) = NetNs::create(&settings).await.expect("a namespace");
                let port = format!("port{last}");
                let link = wire.veth(&port, Some(index), LINK, net.file()).await;
                link.expect("a link");
                let link = links.up(LINK).await.expect("a link");
                let own = parse(of(&format!("172.18.0.{last}"), &format!("fd00::{last}")));
                let prefix = if is_ipv6 { 64 } else { 24 };
                let prefixed = IpNet::new(own, prefix).expect("a prefix");
                links.address(link, prefixed).await.expect("an address");
                if last > 2 {
                    let lo = links.index("lo").await.expect("a link");
                    links.address(lo, address.into()).await.expect("an address");
                    let listener = net.listen((address, 80).into()).expect("a listener");
                    listener.set_nonblocking(true).expect("so");
                    listeners.push(TcpListener::from_std(listener).expect("a listener"));
                }
                addresses.push(own);
                nets.push(net);
            }
            let nodes = addresses.split_off(2);
            let mut nets = nets.into_iter();
            let (client, router) = (nets.next().expect("one"), nets.next().expect("one"));
            apply_settings(&client, CLIENT).expect("settings");
            apply_settings(&router, ROUTER).expect("settings");
            Self {
                route: OutsideRoute {
                    client,
                    router,
                    through: addresses.split_off(1),
                },
                nodes,
                listeners,
                address: (address, 80).into(),
                _bridge: bridge,
            }
        }
    }

    #[tokio::test]
    async fn an_address_leads_to_its_nodes_and_without_any_to_silence() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        for is_ipv6 in [false, true] {
            let machines = Machines::create(is_ipv6).await;
            let range = IpNet::new(machines.address.ip(), if is_ipv6 { 112 } else { 24 }).expect("a range");
            let router = machines
                .route
                .route_ranges(&[range.trunc()])
                .await
                .expect("routes");
            for _ in 0..2 {
                let silent = Duration::from_secs(1);
                let unreachable = connect(&machines.route.client, machines.address, silent).await;
                assert!(unreachable.is_none(), "{unreachable:?}");
                let to = machines.address.ip();
                router.spread(to, &machines.nodes).await.expect("a route");
                let reached = connect(&machines.route.client, machines.address, CONNECT_LIMIT).await;
                assert!(matches!(reached, Some(Ok(_))), "{reached:?}");
                router.spread(to, &[]).await.expect("no route");
            }
        }
    }

    #[tokio::test]
    async fn the_end_of_an_unknown_connection_takes_the_route_it_began_on() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        for is_ipv6 in [false, true] {
            let machines = Machines::create(is_ipv6).await;
            let to = machines.address.ip();
            let router = machines.route.route_ranges(&[to.into()]).await.expect("routes");
            router.spread(to, &machines.nodes).await.expect("a route");
            let [one, other] = &machines.listeners[..] else {
                panic!("two nodes listen");
            };
            expect_ended(&machines.route.client, machines.address, [one, other]).await;
        }
    }
}
