//! Who may bind a node port.

use std::{io, net::SocketAddr};

use lb_abi::{Counter, Frontend, frontend_flags};
use lb_loader::Datapath;
use socket2::{Domain, Socket, Type};

use super::{
    peers::{elsewhere, fails},
    world::{Family, Protocol, ServicePort, counts, put_node_addresses},
};
use crate::support::isolated;

const NODE_PORT: u16 = 30080;

/// Binds, also to addresses that no device has.
fn bind(protocol: Protocol, at: SocketAddr, only_v6: bool) -> io::Result<Socket> {
    let kind = match protocol {
        Protocol::Tcp => Type::STREAM,
        Protocol::Udp => Type::DGRAM,
    };
    let socket = Socket::new(Domain::for_address(at), kind, None)?;
    socket.set_freebind_v4(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(only_v6)?;
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&at.into())?;
    Ok(socket)
}

#[track_caller]
fn taken(datapath: &Datapath, protocol: Protocol, at: SocketAddr, only_v6: bool) {
    counts(datapath, Counter::BindRefused, 1, || {
        fails(libc::EADDRINUSE, || bind(protocol, at, only_v6));
    });
}

#[track_caller]
fn free(datapath: &Datapath, protocol: Protocol, at: SocketAddr, only_v6: bool) {
    counts(datapath, Counter::BindRefused, 0, || {
        bind(protocol, at, only_v6).unwrap_or_else(|error| panic!("{at}, {protocol:?}: {error}"));
    });
}

/// A node port of a family and protocol, with or without backends.
fn reserve(datapath: &Datapath, family: Family, protocol: Protocol) {
    put_node_addresses(datapath);
    ServicePort::new(datapath, 1, protocol, &[]).at(family.unspecified(NODE_PORT));
}

#[test]
fn a_node_port_is_taken_wherever_it_answers() {
    isolated(|node| {
        let datapath = node.start();
        for protocol in Protocol::BOTH {
            reserve(&datapath, Family::V4, protocol);
            reserve(&datapath, Family::V6, protocol);
            for family in Family::ALL {
                taken(&datapath, protocol, family.unspecified(NODE_PORT), false);
                taken(&datapath, protocol, family.node(NODE_PORT), false);
                taken(&datapath, protocol, family.loopback(NODE_PORT), false);
                free(&datapath, protocol, family.unspecified(NODE_PORT + 1), false);
                free(&datapath, protocol, family.node(NODE_PORT + 1), false);
                // An address that is not the node's, where no node port answers.
                free(&datapath, protocol, family.cluster_ip(NODE_PORT), false);
            }
            let all_of_loopback = SocketAddr::new([127, 0, 0, 9].into(), NODE_PORT);
            taken(&datapath, protocol, all_of_loopback, false);
        }
    });
}

#[test]
fn a_node_port_whose_target_has_its_number_is_free() {
    isolated(|node| {
        let datapath = node.start();
        for protocol in Protocol::BOTH {
            for family in [Family::V4, Family::V6] {
                reserve(&datapath, family, protocol);
                let at = family.unspecified(NODE_PORT);
                taken(&datapath, protocol, at, false);
                let frontend = Frontend {
                    internal: 1,
                    external: 1,
                    flags: frontend_flags::TARGET_PORT,
                    ..Frontend::default()
                };
                ServicePort::new(&datapath, 1, protocol, &[]).frontend(at, frontend);
                free(&datapath, protocol, at, true);
            }
        }
    });
}

#[test]
fn the_protocol_is_the_sockets() {
    isolated(|node| {
        let datapath = node.start();
        reserve(&datapath, Family::V4, Protocol::Udp);
        taken(&datapath, Protocol::Udp, Family::V4.unspecified(NODE_PORT), false);
        free(&datapath, Protocol::Tcp, Family::V4.unspecified(NODE_PORT), false);
    });
}

#[test]
fn an_ipv4_node_port_is_taken_from_sockets_that_have_ipv4_and_from_no_others() {
    isolated(|node| {
        let datapath = node.start();
        for protocol in Protocol::BOTH {
            reserve(&datapath, Family::V4, protocol);
            taken(&datapath, protocol, Family::V4.unspecified(NODE_PORT), false);
            taken(&datapath, protocol, Family::Mapped.unspecified(NODE_PORT), false);
            taken(&datapath, protocol, Family::V6.unspecified(NODE_PORT), false);
            free(&datapath, protocol, Family::V6.unspecified(NODE_PORT), true);
            free(&datapath, protocol, Family::V6.loopback(NODE_PORT), false);
            free(&datapath, protocol, Family::V6.node(NODE_PORT), false);
        }
    });
}

#[test]
fn an_ipv6_node_port_is_taken_from_ipv6_sockets_alone() {
    isolated(|node| {
        let datapath = node.start();
        for protocol in Protocol::BOTH {
            reserve(&datapath, Family::V6, protocol);
            for only_v6 in [false, true] {
                taken(&datapath, protocol, Family::V6.unspecified(NODE_PORT), only_v6);
                taken(&datapath, protocol, Family::V6.loopback(NODE_PORT), only_v6);
                taken(&datapath, protocol, Family::V6.node(NODE_PORT), only_v6);
            }
            free(&datapath, protocol, Family::V4.unspecified(NODE_PORT), false);
            free(&datapath, protocol, Family::Mapped.unspecified(NODE_PORT), false);
        }
    });
}

#[test]
fn other_network_namespaces_have_their_own_ports() {
    isolated(|node| {
        let datapath = node.start();
        for protocol in Protocol::BOTH {
            reserve(&datapath, Family::V4, protocol);
            reserve(&datapath, Family::V6, protocol);
            elsewhere(|| {
                for family in Family::ALL {
                    free(&datapath, protocol, family.unspecified(NODE_PORT), false);
                    free(&datapath, protocol, family.loopback(NODE_PORT), false);
                }
            });
            taken(&datapath, protocol, Family::V4.unspecified(NODE_PORT), false);
        }
    });
}

#[test]
fn a_socket_that_was_refused_can_bind_elsewhere_and_a_released_port_is_free() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            reserve(&datapath, family, Protocol::Tcp);
            let at = family.unspecified(NODE_PORT);
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, None).expect("a socket");
            fails(libc::EADDRINUSE, || socket.bind(&at.into()));
            socket
                .bind(&family.unspecified(0).into())
                .expect("bound elsewhere");
            socket.listen(1).expect("listening");
            let key = super::world::frontend_key(Protocol::Tcp, at);
            assert!(
                datapath
                    .maps()
                    .frontends
                    .delete(&key)
                    .expect("the node port goes")
            );
            free(&datapath, Protocol::Tcp, at, false);
        }
    });
}
