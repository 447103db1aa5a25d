//! Network namespaces with veth pairs between them and the test's own.
//!
//! ```text
//! client 192.0.2.2 ── uplink 192.0.2.1 ─ node ─ pod 10.1.0.1 ────── pod 10.1.0.2
//!                                          └─── far 198.51.100.1 ── remote 198.51.100.2
//! ```
//!
//! The same with 2001:db8:1::, fd00:1:: and 2001:db8:2::.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) use test_network::Namespace;
use test_network::{Device, IpNet, Links, NetworkError, Route, prepare};

/// One family's addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) node: IpAddr,
    pub(super) client: IpAddr,
    pub(super) pod: IpAddr,
    pub(super) remote: IpAddr,
    /// Of services alone; no device has it.
    pub(super) vip: IpAddr,
    /// The node's, at the pod's device and at the one to the remote node.
    gateways: [IpAddr; 2],
    /// Bits of the networks.
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

pub(super) const FAMILIES: [Family; 2] = [
    Family {
        node: v4(192, 0, 2, 1),
        client: v4(192, 0, 2, 2),
        pod: v4(10, 1, 0, 2),
        remote: v4(198, 51, 100, 2),
        vip: v4(203, 0, 113, 9),
        gateways: [v4(10, 1, 0, 1), v4(198, 51, 100, 1)],
        prefix: 24,
    },
    Family {
        node: v6(0x2001, 0xdb8, 1, 1),
        client: v6(0x2001, 0xdb8, 1, 2),
        pod: v6(0xfd00, 1, 0, 2),
        remote: v6(0x2001, 0xdb8, 2, 2),
        vip: v6(0x2001, 0xdb8, 3, 9),
        gateways: [v6(0xfd00, 1, 0, 1), v6(0x2001, 0xdb8, 2, 1)],
        prefix: 64,
    },
];

/// The namespaces around the test's own.
pub(super) struct Network {
    pub(super) client: Namespace,
    pub(super) pod: Namespace,
    pub(super) remote: Namespace,
}

/// The node's devices.
pub(super) const UPLINK: &str = "uplink";
pub(super) const POD: &str = "pod";
pub(super) const FAR: &str = "far";

impl Network {
    /// Makes everything, around the calling thread's namespace.
    pub(super) fn new() -> Self {
        Self::around_this_thread().expect("a network")
    }

    fn around_this_thread() -> Result<Self, NetworkError> {
        prepare()?;
        let network = Self {
            client: Namespace::create()?,
            pod: Namespace::create()?,
            remote: Namespace::create()?,
        };
        let [to_pod, to_remote] = [0, 1].map(|at| FAMILIES.map(|family| family.gateways[at]));
        let node = FAMILIES.map(|family| family.node);
        connect(
            UPLINK,
            node,
            &network.client,
            FAMILIES.map(|family| family.client),
        )?;
        connect(POD, to_pod, &network.pod, FAMILIES.map(|family| family.pod))?;
        connect(
            FAR,
            to_remote,
            &network.remote,
            FAMILIES.map(|family| family.remote),
        )?;
        Ok(network)
    }

    /// Makes the client the node's default gateway.
    pub(super) fn routes_all_to_the_client() {
        let links = here();
        for family in FAMILIES {
            let route = Route::default_via(family.client);
            links.add_route(route).expect("a default route");
        }
    }
}

/// Connects a device to another namespace, which sends everything here.
fn connect(
    device: &str,
    here: [IpAddr; 2],
    other: &Namespace,
    there: [IpAddr; 2],
) -> Result<(), NetworkError> {
    let (node, inside) = (Links::here()?, other.links()?);
    let peer = peer(device);
    node.veth(Device::named(device), other.device(&peer))?;
    for ((here, there), family) in here.into_iter().zip(there).zip(FAMILIES) {
        node.addresses(device, &[family.network(here)])?;
        inside.addresses(&peer, &[family.network(there)])?;
        inside.add_route(Route::default_via(here))?;
    }
    Ok(())
}

/// The other end of a device.
fn peer(device: &str) -> String {
    format!("{device}-peer")
}

/// Devices of the calling thread's namespace.
pub(super) fn here() -> Links {
    Links::here().expect("netlink")
}

/// A veth pair without addresses, both ends here; the first with this index, if there is one given.
pub(super) fn pair(device: &str, index: Option<u32>) {
    let end = Device::named(device);
    let end = index.map_or(end, |index| end.index(index));
    here()
        .veth(end, Device::named(&peer(device)))
        .expect("a veth pair");
}

/// The index of a device of the calling thread's namespace.
pub(super) fn index(device: &str) -> u32 {
    here().index(device).expect("the device is there")
}
