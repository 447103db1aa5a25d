//! Network namespaces with veth pairs between them and the node's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::TryStreamExt as _;
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage},
};
pub(crate) use test_network::Namespace;
use test_network::{Device, IpNet, Links, NetworkError, Route, Via, prepare, set_sysctl};

/// One family's addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) node: IpAddr,
    pub(crate) client: IpAddr,
    /// Another client outside.
    pub(crate) other: IpAddr,
    pub(crate) pods: [IpAddr; 2],
    /// The node's, at every pod's device.
    pub(crate) gateway: IpAddr,
    pub(crate) remote: IpAddr,
    /// Bits of the network that node and clients share.
    prefix: u8,
}

impl Family {
    fn network(&self, address: IpAddr) -> IpNet {
        IpNet::new(address, self.prefix).expect("a length of the family")
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(first: u16, second: u16, third: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last))
}

pub(crate) const FAMILIES: [Family; 2] = [
    Family {
        node: v4(192, 0, 2, 1),
        client: v4(192, 0, 2, 2),
        other: v4(192, 0, 2, 9),
        pods: [v4(10, 244, 1, 2), v4(10, 244, 1, 3)],
        gateway: v4(10, 244, 1, 1),
        remote: v4(10, 244, 2, 2),
        prefix: 24,
    },
    Family {
        node: v6(0x2001, 0xdb8, 1, 1),
        client: v6(0x2001, 0xdb8, 1, 2),
        other: v6(0x2001, 0xdb8, 1, 9),
        pods: [v6(0xfd00, 1, 0, 2), v6(0xfd00, 1, 0, 3)],
        gateway: v6(0xfd00, 1, 0, 1),
        remote: v6(0xfd00, 2, 0, 2),
        prefix: 64,
    },
];

/// The namespaces around the node's, which is the caller's.
pub(crate) struct Network {
    pub(crate) outside: Namespace,
}

/// The node's device to the network.
pub(crate) const UPLINK: &str = "eth0";
/// The device of every other namespace.
const INSIDE: &str = "eth0";

impl Network {
    /// The node with its uplink; pods come later.
    pub(crate) fn new() -> Self {
        Self::around_the_node().expect("a network")
    }

    fn around_the_node() -> Result<Self, NetworkError> {
        prepare()?;
        let outside = Namespace::create()?;
        let (node, beyond) = (Links::here()?, outside.links()?);
        node.veth(Device::named(UPLINK), outside.device(INSIDE))?;
        for family in FAMILIES {
            node.addresses(UPLINK, &[family.network(family.node)])?;
            beyond.addresses(INSIDE, &[family.network(family.client), family.other.into()])?;
            beyond.addresses("lo", &[family.remote.into()])?;
            node.add_route(Route::default_via(family.client))?;
            beyond.add_route(Route::default_via(family.node))?;
        }
        Ok(Self { outside })
    }
}

/// The namespace of one pod, wired as CNI's ptp does.
pub(crate) fn pod(number: usize) -> Namespace {
    pod_behind(device(number), number).expect("a pod")
}

fn pod_behind(device: &str, number: usize) -> Result<Namespace, NetworkError> {
    let namespace = Namespace::create()?;
    let (node, inside) = (Links::here()?, namespace.links()?);
    node.veth(Device::named(device), namespace.device(INSIDE))?;
    for family in FAMILIES {
        let (gateway, pod) = (family.gateway, family.pods[number]);
        node.addresses(device, &[gateway.into()])?;
        inside.addresses(INSIDE, &[pod.into()])?;
        node.add_route(Route::to(pod.into(), Via::Device(device)))?;
        inside.add_route(Route::to(gateway.into(), Via::Device(INSIDE)))?;
        inside.add_route(Route::default_via(gateway))?;
    }
    Ok(namespace)
}

/// The node's end of a pod's pair.
pub(crate) fn device(pod: usize) -> &'static str {
    ["veth1-2", "veth1-3"][pod]
}

/// Devices of the calling thread's namespace.
pub(crate) fn here() -> Links {
    Links::here().expect("netlink")
}

/// Routes of the main table with this protocol number, of the calling thread's namespace, sorted.
pub(crate) fn routes_of(protocol: u8) -> Vec<String> {
    let routes: Vec<RouteMessage> = here().request(async |handle| {
        let mut found = Vec::new();
        for family in [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ] {
            let routes = handle.route().get(family).execute();
            let listed: Vec<RouteMessage> = routes.try_collect().await.expect("routes");
            found.extend(listed);
        }
        found
    });
    let mut shown: Vec<String> = routes
        .iter()
        .filter(|route| {
            u8::from(route.header.protocol) == protocol && route.header.table == RouteHeader::RT_TABLE_MAIN
        })
        .map(shown)
        .collect();
    shown.sort();
    shown
}

fn shown(route: &RouteMessage) -> String {
    let address = |address: &RouteAddress| match address {
        RouteAddress::Inet(v4) => v4.to_string(),
        RouteAddress::Inet6(v6) => v6.to_string(),
        other => format!("{other:?}"),
    };
    let (mut to, mut via) = (String::new(), String::new());
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(found) => to = address(found),
            RouteAttribute::Gateway(found) => via = address(found),
            _ => {}
        }
    }
    format!("{to}/{} via {via}", route.header.destination_prefix_length)
}

/// Takes a device of the calling thread's namespace down and up again: routes by it are gone then.
pub(crate) fn flap(device: &str) {
    set_sysctl(&format!("ipv6/conf/{device}/keep_addr_on_down"), "1").expect("a setting of the device");
    let links = here();
    links.down(device).expect("the device down");
    links.up(device).expect("the device up");
}
