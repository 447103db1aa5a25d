//! The way of the client outside to load balancers.
//!
//! ```text
//!  client ─▶ router ─▶ the nodes behind an address, by turns of connections
//!    ▲                   │
//!    └───── answers ─────┘
//! ```
//!
//! Routes of several next hops are the router's, not the client's: who forwards a packet chooses by what stands in it, so that
//! all of a connection take one way. Who sends it chooses when the connection begins, since Linux 6.16 before it has a port, and
//! the RST for a connection that it does not know any more takes another way than its SYN did.

use std::{fs, io, net::IpAddr, path::Path};

use ipnet::IpNet;
use lab::{BY_CONNECTION_IPV4, BY_CONNECTION_IPV6, LabError, NetNs, Router, Via, everything};

/// The link of a container in the network of the nodes.
const LINK: &str = "eth0";

/// The client forwards nothing, and nobody tells it of a shorter way than the router.
pub(super) const CLIENT: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/eth0/accept_redirects", "0"),
    ("ipv6/conf/all/forwarding", "0"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/eth0/accept_redirects", "0"),
];
/// The router forwards, and chooses a node behind a load balancer by connections.
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

/// Gives a namespace settings below `/proc/sys/net`.
pub(super) fn keep(net: &NetNs, settings: &[(&str, &str)]) -> io::Result<()> {
    net.inside(|| {
        for (file, value) in settings {
            // Shows the namespace of the thread that looks. A kernel may have no IPv6.
            let file = Path::new("/proc/sys/net").join(file);
            if file.exists() {
                fs::write(file, value)?;
            }
        }
        Ok(())
    })
}

/// The network namespaces of client and router, and the router's addresses.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) client: NetNs,
    pub(super) router: NetNs,
    pub(super) through: Vec<IpAddr>,
}

impl Way {
    /// Lets these ranges of addresses lead from the client to the router, where they end in silence: who it is that passes an
    /// address of them on to nodes is returned.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) async fn lead(&self, ranges: &[IpNet]) -> Result<Router, LabError> {
        let (client, router) = (self.client.links()?, self.router.links()?);
        for through in &self.through {
            // Docker gives it one that leaves this host.
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

    /// A link of their own for a client, a router and two nodes. Nodes have the address of a load balancer, and listen there.
    struct Machines {
        way: Way,
        nodes: Vec<IpAddr>,
        listeners: Vec<TcpListener>,
        address: SocketAddr,
        /// Lives as long as they are to reach each other.
        _bridge: NetNs,
    }

    impl Machines {
        async fn create(is_ipv6: bool) -> Self {
            let of = |ipv4: &str, ipv6: &str| if is_ipv6 { ipv6 } else { ipv4 }.to_owned();
            let parse = |text: String| -> IpAddr { text.parse().expect("an address") };
            let address = parse(of("198.18.0.7", "2001:2::7"));
            // As Docker has its containers.
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
            keep(&client, CLIENT).expect("settings");
            keep(&router, ROUTER).expect("settings");
            Self {
                way: Way {
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
            let router = machines.way.lead(&[range.trunc()]).await.expect("routes");
            for _ in 0..2 {
                let silent = Duration::from_secs(1);
                let nobody = connect(&machines.way.client, machines.address, silent).await;
                assert!(nobody.is_none(), "{nobody:?}");
                let to = machines.address.ip();
                router.spread(to, &machines.nodes).await.expect("a route");
                let led = connect(&machines.way.client, machines.address, CONNECT_LIMIT).await;
                assert!(matches!(led, Some(Ok(_))), "{led:?}");
                router.spread(to, &[]).await.expect("no route");
            }
        }
    }

    #[tokio::test]
    async fn what_ends_a_connection_nobody_knows_takes_the_way_it_began_on() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        for is_ipv6 in [false, true] {
            let machines = Machines::create(is_ipv6).await;
            let to = machines.address.ip();
            let router = machines.way.lead(&[to.into()]).await.expect("routes");
            router.spread(to, &machines.nodes).await.expect("a route");
            let [one, other] = &machines.listeners[..] else {
                panic!("two nodes listen");
            };
            expect_ended(&machines.way.client, machines.address, [one, other]).await;
        }
    }
}
