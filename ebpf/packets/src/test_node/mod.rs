//! A node in a network namespace of the calling thread's own: what `BPF_PROG_TEST_RUN` and the route look-ups of the
//! programs need of one.
//!
//! ```text
//!                       ┌───────────────── node ─────────────────┐
//!  client, stranger     │                                        │
//!        └── gateway ─┬─ UPLINK                             POD_A ── pod_a
//!  remote, narrow     │ │ node, node_also     (forwarding)  POD_B ── pod_b
//!        └─ next_node ┘ │                                  CLOSED   (does not forward)
//!                       └────────────────────────────────────────┘
//! ```
//!
//! Nothing is ever sent on the devices: test runs end with a program's verdict.

mod addresses;
pub mod sockets;

use std::net::IpAddr;

use test_network::{Device, EnteredNamespace, IpNet, Links, NetworkError, Route, Via, set_sysctl};

pub use self::addresses::{Addresses, V4, V6};

/// The device to the outside: its index.
pub const UPLINK: u32 = 101;
/// The device of [`Addresses::pod_a`]: its index.
pub const POD_A: u32 = 102;
/// The device of [`Addresses::pod_b`]: its index.
pub const POD_B: u32 = 103;
/// A device that does not forward: its index. No address is behind it.
pub const CLOSED: u32 = 104;

/// What devices take in one piece, in bytes from the IP header on.
pub const MTU: u32 = 1500;
/// What the way to [`Addresses::narrow`] takes.
pub const SMALL_MTU: u32 = 1300;

/// The link address of this node's end of every device.
pub const NODE_LINK: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// The link address of whatever is at the other end.
pub const PEER_LINK: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

/// The devices; the other end of each has the same name and `_peer`.
const DEVICES: [(u32, &str); 4] = [
    (UPLINK, "uplink"),
    (POD_A, "pod_a"),
    (POD_B, "pod_b"),
    (CLOSED, "closed"),
];

/// The node, for as long as this value lives: the calling thread is in its network namespace, and goes back to where it
/// was when this is dropped. The namespace then ends, with everything in it.
#[derive(Debug)]
pub struct TestNode {
    _namespace: EnteredNamespace,
}

impl TestNode {
    /// Makes the namespace and all that is in it, and enters it.
    ///
    /// # Errors
    /// [`NetworkError`]; the thread is then where it was.
    pub fn enter() -> Result<Self, NetworkError> {
        let namespace = EnteredNamespace::enter()?;
        // Devices have no addresses but those of the families.
        set_sysctl("ipv6/conf/default/addr_gen_mode", "1")?;
        let links = Links::here()?;
        for (index, name) in DEVICES {
            let peer = format!("{name}_peer");
            let device = Device::named(name).index(index).link_address(NODE_LINK).mtu(MTU);
            let peer = Device::named(&peer).link_address(PEER_LINK).mtu(MTU);
            links.veth(device, peer)?;
        }
        add_family(&links, &V4, 24)?;
        add_family(&links, &V6, 64)?;
        for family in ["ipv4", "ipv6"] {
            set_sysctl(&format!("{family}/conf/closed/forwarding"), "0")?;
        }
        Ok(Self {
            _namespace: namespace,
        })
    }

    /// Makes the link address of [`Addresses::next_node`] known, so that packets are sent to it and not kept until it has answered.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn introduce_next_node(&self) -> Result<(), NetworkError> {
        let links = Links::here()?;
        [&V4, &V6]
            .into_iter()
            .try_for_each(|at| links.neighbour("uplink", at.next_node, PEER_LINK))
    }
}

/// Adds addresses, routes and neighbours of a family. `length`: bits of its networks' prefixes.
fn add_family(links: &Links, at: &Addresses, length: u8) -> Result<(), NetworkError> {
    let network = |address: IpAddr| IpNet::new_assert(address, length);
    links.addresses("uplink", &[at.node, at.node_also].map(network))?;
    for (pod, device) in [(at.pod_a, "pod_a"), (at.pod_b, "pod_b")] {
        links.add_route(Route::to(pod.into(), Via::Device(device)))?;
        links.neighbour(device, pod, PEER_LINK)?;
    }
    links.neighbour("uplink", at.gateway, PEER_LINK)?;
    for destination in [at.client, at.stranger] {
        links.add_route(Route::to(network(destination), Via::Gateway(at.gateway)))?;
    }
    // The next node is at the uplink, but its link address is not known yet.
    let next = Via::Gateway(at.next_node);
    links.add_route(Route::to(network(at.remote), next))?;
    links.add_route(Route::to(network(at.narrow), next).locked_mtu(SMALL_MTU))?;
    links.add_route(Route::to(network(at.unreachable), Via::Unreachable))
}
