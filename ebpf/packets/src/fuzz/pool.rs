//! What everything is drawn from: few enough that packets meet services, and flows each other.

use std::net::IpAddr;

use lb_abi::{Address, SCTP, TCP, UDP};

use crate::{
    model::{Route, Routes},
    test_node::{Addresses, MTU, SMALL_MTU, V4, V6},
};

/// The addresses of a family.
pub(super) const fn family(v4: bool) -> &'static Addresses {
    if v4 { &V4 } else { &V6 }
}

/// Where clients are.
pub(super) const CLIENTS: usize = 6;

pub(super) fn client(v4: bool, index: usize) -> IpAddr {
    let at = family(v4);
    [at.client, at.stranger, at.pod_a, at.pod_b, at.node, at.remote][index % CLIENTS]
}

/// Where frontends are.
pub(super) const PLACES: usize = 6;

pub(super) fn place(v4: bool, index: usize) -> IpAddr {
    let at = family(v4);
    let node_port = if v4 {
        Address::UNSPECIFIED_V4
    } else {
        Address::UNSPECIFIED_V6
    };
    [
        at.cluster_ip,
        node_port.into(),
        at.load_balancer,
        at.cluster_ip_also,
        at.node,
        at.node_also,
    ][index % PLACES]
}

/// Where a frontend of that place is reached.
pub(super) fn reached(v4: bool, index: usize) -> IpAddr {
    let place = place(v4, index);
    if place.is_unspecified() {
        family(v4).node
    } else {
        place
    }
}

/// Where backends are; the first two are local.
pub(super) const HOSTS: usize = 9;

pub(super) fn host(v4: bool, index: usize) -> IpAddr {
    let at = family(v4);
    [
        at.pod_a,
        at.pod_b,
        at.remote,
        at.remote_also,
        at.narrow,
        at.unreachable,
        at.nowhere,
        at.node,
        at.client,
    ][index % HOSTS]
}

/// Sources that no host can have, and others.
pub(super) fn odd(v4: bool, index: usize) -> IpAddr {
    let of = |text4: &str, text6: &str| {
        let text = if v4 { text4 } else { text6 };
        text.parse().expect("an address")
    };
    let all = [
        of("0.0.0.0", "::"),
        of("127.0.0.1", "::1"),
        of("127.3.2.1", "::1"),
        of("224.0.0.1", "ff02::1"),
        of("239.1.2.3", "ffff::1"),
        of("255.255.255.255", "ff0e::1"),
        of("240.0.0.1", "100::1"),
        place(v4, 0),
        family(v4).node_also,
    ];
    all[index % all.len()]
}

pub(super) const PROTOCOLS: [u8; 3] = [TCP, UDP, SCTP];
/// Of frontends.
pub(super) const PORTS: [u16; 3] = [80, 443, 30080];
/// Of backends; one of them is also a frontend's.
pub(super) const TARGETS: [u16; 3] = [8080, 9090, 80];
/// Of clients; one of them may also be allocated.
pub(super) const SOURCES: [u16; 3] = [40000, 40001, 1024];
/// The first port that is allocated.
pub(super) const FIRST: u16 = 40001;
/// So many, without those of sockets, are divided between clients of this machine and of others.
pub(super) const WIDE: u16 = 1100;
/// The port that a local socket has.
pub(super) const TAKEN: u16 = 40003;

/// Identification of a datagram, whose halves differ.
pub(super) const fn datagram(number: u32) -> u32 {
    0x1d1d_0000 + 0x1_0001 * number
}

/// The routing table of the test node.
pub fn routes() -> Routes {
    let uplink = Route::Via { mtu: MTU };
    let mut routes = Routes::default();
    for (at, network, host) in [(&V4, 24, 32), (&V6, 64, 128)] {
        for there in [at.node, at.client, at.stranger, at.remote] {
            routes = routes.with(there.into(), network, uplink);
        }
        for pod in [at.pod_a, at.pod_b] {
            routes = routes.with(pod.into(), host, uplink);
        }
        for own in [at.node, at.node_also] {
            routes = routes.with(own.into(), host, Route::None);
        }
        let narrow = Route::Via { mtu: SMALL_MTU };
        routes = routes.with(at.narrow.into(), network, narrow);
        routes = routes.with(at.unreachable.into(), network, Route::None);
    }
    routes
}
