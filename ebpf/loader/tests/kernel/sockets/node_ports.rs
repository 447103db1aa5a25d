//! Node ports at the node's addresses, and at loopback where that is the policy.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use lb_abi::{Address, Counter};
use lb_loader::Datapath;

use super::{
    peers::{Seen, ask, dial, elsewhere, fails, refused, serve, server, udp_client},
    world::{Family, Protocol, ServicePort, counts, frontend_key, put_node_addresses},
};
use crate::support::isolated;

const NODE_PORT: u16 = 30080;

/// A service with the node port of a family and protocol, and its server.
fn node_port(datapath: &Datapath, family: Family, protocol: Protocol) -> SocketAddr {
    let server = server(protocol, family);
    // IPv4-mapped is IPv4.
    let id = match (family, protocol) {
        (Family::V4 | Family::Mapped, Protocol::Tcp) => 1,
        (Family::V4 | Family::Mapped, Protocol::Udp) => 2,
        (Family::V6, Protocol::Tcp) => 3,
        (Family::V6, Protocol::Udp) => 4,
    };
    ServicePort::new(datapath, id, protocol, &[server]).at(family.unspecified(NODE_PORT));
    server
}

#[test]
fn at_every_address_of_the_node_and_at_no_other() {
    isolated(|node| {
        let datapath = node.start();
        put_node_addresses(&datapath);
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let server = node_port(&datapath, family, protocol);
                for peer in [family.node(NODE_PORT), family.loopback(NODE_PORT)] {
                    let seen = ask(protocol, family, peer).expect("an answer");
                    assert_eq!(seen, Seen { server, peer }, "{family:?}, {protocol:?}");
                }
                // No route leads to any of them, and nobody listens there.
                for outside in [family.cluster_ip(NODE_PORT), family.node(NODE_PORT + 1)] {
                    fails(libc::ENETUNREACH, || ask(protocol, family, outside));
                }
            }
        }
    });
}

#[test]
fn at_all_of_loopback_and_at_the_unspecified_address_which_means_it() {
    isolated(|node| {
        let datapath = node.start();
        put_node_addresses(&datapath);
        let server = node_port(&datapath, Family::V4, Protocol::Tcp);
        for last in [[0, 0, 1], [0, 0, 2], [255, 255, 254]] {
            let [b, c, d] = last;
            let peer = SocketAddr::new(Ipv4Addr::new(127, b, c, d).into(), NODE_PORT);
            let seen = ask(Protocol::Tcp, Family::V4, peer).expect("a connection");
            assert_eq!(seen, Seen { server, peer });
        }
        node_port(&datapath, Family::V6, Protocol::Tcp);
        for family in Family::ALL {
            let translated = || ask(Protocol::Tcp, family, family.unspecified(NODE_PORT));
            counts(&datapath, Counter::ConnectTranslated, 1, translated).expect("a connection");
        }
    });
}

#[test]
fn at_loopback_by_policy_alone() {
    isolated(|node| {
        let datapath = node.start();
        put_node_addresses(&datapath);
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                node_port(&datapath, family, protocol);
                put_node_addresses(&datapath);
                let at_loopback = || ask(protocol, family, family.loopback(NODE_PORT));
                at_loopback().expect("an answer");
                let loopback = Address::from(family.loopback(0).ip());
                assert!(
                    datapath
                        .maps()
                        .addresses
                        .delete(&loopback)
                        .expect("the address goes")
                );
                // Nobody listens there: for TCP the host says so, and UDP waits for nobody.
                match protocol {
                    Protocol::Tcp => {
                        counts(&datapath, Counter::ConnectPassed, 1, || refused(at_loopback));
                    }
                    Protocol::Udp => {
                        counts(&datapath, Counter::SendmsgPassed, 1, || {
                            let client = udp_client(family);
                            client.send_to(b"who", family.loopback(NODE_PORT)).expect("sent");
                        });
                    }
                }
                ask(protocol, family, family.node(NODE_PORT)).expect("an answer at the node's address");
            }
        }
    });
}

#[test]
fn not_at_the_loopback_of_another_network_namespace() {
    isolated(|node| {
        let datapath = node.start();
        put_node_addresses(&datapath);
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let server = node_port(&datapath, family, protocol);
                let own = if family == Family::Mapped {
                    Family::V4
                } else {
                    family
                };
                elsewhere(|| {
                    // Somebody listens there, at that very port, and it is they who answer.
                    let there = serve(protocol, own.loopback(NODE_PORT));
                    for peer in [family.loopback(NODE_PORT), family.unspecified(NODE_PORT)] {
                        let seen = ask(protocol, family, peer).expect("an answer");
                        assert_eq!(seen.server, there, "{family:?}, {protocol:?}, {peer}");
                    }
                    // The node's address is the node's from everywhere: the backend's port is closed here.
                    let again = serve(protocol, server);
                    if let Protocol::Udp = protocol {
                        // It may be an answer: packet programs, of which there are none here, know.
                        let sends = UdpSocket::bind(family.client()).expect("a socket");
                        let sent = counts(&datapath, Counter::SocketDeferred, 1, || {
                            sends.send_to(b"who", family.node(NODE_PORT))
                        });
                        assert_eq!(
                            sent.expect_err("no route").raw_os_error(),
                            Some(libc::ENETUNREACH)
                        );
                        return;
                    }
                    let seen = counts(&datapath, Counter::ConnectTranslated, 1, || {
                        ask(protocol, family, family.node(NODE_PORT))
                    });
                    assert_eq!(seen.expect("an answer").server, again);
                });
            }
        }
    });
}

#[test]
fn each_family_has_its_own() {
    isolated(|node| {
        let datapath = node.start();
        put_node_addresses(&datapath);
        for family in [Family::V4, Family::V6] {
            let server = node_port(&datapath, family, Protocol::Tcp);
            let peer = family.node(NODE_PORT);
            assert_eq!(dial(peer).expect("a connection"), Seen { server, peer });
            let key = frontend_key(Protocol::Tcp, family.unspecified(NODE_PORT));
            assert!(
                datapath
                    .maps()
                    .frontends
                    .delete(&key)
                    .expect("the node port goes")
            );
            fails(libc::ENETUNREACH, || dial(peer));
        }
    });
}

#[test]
fn an_address_of_its_own_goes_before_a_node_port() {
    isolated(|node| {
        let datapath = node.start();
        put_node_addresses(&datapath);
        for family in Family::ALL {
            node_port(&datapath, family, Protocol::Tcp);
            let own = server(Protocol::Tcp, family);
            let at = ServicePort::new(&datapath, 9, Protocol::Tcp, &[own]).at(family.node(NODE_PORT));
            assert_eq!(dial(at).expect("a connection").server, own, "{family:?}");
        }
    });
}
