//! What all tables share: clients, frontends and backends, and the usual maps.

pub(super) use lb_abi::{
    Config, Counter::*, Frontend, Meta, SCTP, Service, SlotKey, TCP, UDP, address_flags, frontend_flags,
    seen::*,
};
pub(super) use lb_loader::DeviceHook::{NodeEgress, NodeIngress, PodEgress, PodIngress};

pub(super) use crate::{
    build::{
        C_TAG, End, Error, Extension, Packet, S_TAG, echo, icmp, options as option, other, quoting, sctp,
        tcp, udp,
    },
    table::{BACKEND, Entry, Given, Row, SERVICE, SNAT_PORT, connection, row},
    test_node::{Addresses, CLOSED, POD_B, SMALL_MTU},
};

/// SCTP's first chunk: DATA.
pub(super) const DATA: u8 = 0;
/// INIT.
pub(super) const INIT: u8 = 1;
/// INIT ACK.
pub(super) const INIT_ACK: u8 = 2;
/// ABORT.
pub(super) const ABORT: u8 = 6;
/// SHUTDOWN.
pub(super) const SHUTDOWN: u8 = 7;
/// SHUTDOWN ACK.
pub(super) const SHUTDOWN_ACK: u8 = 8;
/// SHUTDOWN COMPLETE.
pub(super) const SHUTDOWN_COMPLETE: u8 = 14;

/// The node port of the usual service.
pub(super) const NODE_PORT: u16 = 30_080;

/// The usual ends.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// A client outside.
    pub(super) client: End,
    /// A client outside, elsewhere.
    pub(super) stranger: End,
    /// The load balancer IP and its port.
    pub(super) frontend: End,
    /// The ClusterIP and its port.
    pub(super) cluster: End,
    /// The node port at the node's address.
    pub(super) node_port: End,
    /// A client in a pod.
    pub(super) pod_client: End,
    /// A client on the node.
    pub(super) node_client: End,
    /// The backend in the first pod.
    pub(super) pod: End,
    /// The backend in the second pod.
    pub(super) other_pod: End,
    /// The backend on another node.
    pub(super) far: End,
    /// What a client becomes by SNAT.
    pub(super) masked: End,
}

pub(super) const fn ends(at: &Addresses) -> Ends {
    Ends {
        client: (at.client, 40_000),
        stranger: (at.stranger, 40_000),
        frontend: (at.load_balancer, 80),
        cluster: (at.cluster_ip, 80),
        node_port: (at.node, NODE_PORT),
        pod_client: (at.pod_a, 41_000),
        node_client: (at.node, 42_000),
        pod: (at.pod_a, 8080),
        other_pod: (at.pod_b, 8080),
        far: (at.remote, 8080),
        masked: (at.node, SNAT_PORT),
    }
}

/// Leads to the usual service port in both scopes.
pub(super) const FRONTEND: Frontend = Frontend {
    internal: SERVICE,
    external: SERVICE,
    flags: 0,
    affinity_seconds: 0,
};

/// A node with the usual service at its load balancer IP, ClusterIP (internal only) and node port; without SERVICES.
fn frontends(at: &Addresses, protocol: u8) -> Given {
    let Ends {
        frontend, cluster, ..
    } = ends(at);
    let internal = Frontend {
        external: 0,
        ..FRONTEND
    };
    Given::node(at)
        .frontend(frontend, protocol, FRONTEND)
        .frontend(cluster, protocol, internal)
        .frontend((unspecified(at), NODE_PORT), protocol, FRONTEND)
}

/// `0.0.0.0` or `::`.
pub(super) const fn unspecified(at: &Addresses) -> std::net::IpAddr {
    if at.node.is_ipv4() {
        std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
    } else {
        std::net::IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)
    }
}

/// The usual service, served by the first pod.
pub(super) fn local(at: &Addresses, protocol: u8) -> Given {
    frontends(at, protocol).behind(true, ends(at).pod, protocol)
}

/// The usual service, served by the second pod.
pub(super) fn local_other(at: &Addresses, protocol: u8) -> Given {
    frontends(at, protocol).behind(true, ends(at).other_pod, protocol)
}

/// The usual service, served by another node.
pub(super) fn remote(at: &Addresses, protocol: u8) -> Given {
    frontends(at, protocol).behind(false, ends(at).far, protocol)
}

/// The usual service, without a backend.
pub(super) fn nobody(at: &Addresses, protocol: u8) -> Given {
    frontends(at, protocol).service(SERVICE, &[])
}

/// What the usual frontend has, with these flags.
pub(super) fn flags(given: Given, at: &Addresses, protocol: u8, flags: u32) -> Given {
    let frontend = Frontend { flags, ..FRONTEND };
    given.frontend(ends(at).frontend, protocol, frontend)
}

/// A packet that a program has made: every field that is not set is zero.
pub(super) fn answer(packet: Packet) -> Packet {
    packet.hops(64).id(0).dont_fragment().back()
}

/// The RST that answers a segment: sequence number, and acknowledgment number if it has ACK.
pub(super) fn reset(from: End, to: End, sequence: u32, acknowledgment: Option<u32>) -> Packet {
    let reset = answer(tcp(from, to).rst().window(0));
    match acknowledgment {
        Some(acknowledgment) => reset.ack().numbers(sequence, acknowledgment),
        None => reset.numbers(sequence, 0),
    }
}

/// The port unreachable that answers a packet, by its destination.
pub(super) fn unreachable(from: End, to: End, packet: &Packet) -> Packet {
    answer(quoting(from.0, to.0, Error::PORT_UNREACHABLE, packet, 8))
}
