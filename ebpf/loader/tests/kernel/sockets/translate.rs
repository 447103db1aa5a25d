//! TCP and UDP reach backends, and their peers are the frontends.

use std::{collections::BTreeSet, net::SocketAddr};

use lb_abi::{Counter, Traffic};

use super::{
    peers::{Seen, ask, dial, dial_nonblocking, receive, server, udp_client},
    world::{Family, Protocol, ServicePort, backend_id, count, counts},
};
use crate::support::isolated;

#[test]
fn tcp_reaches_a_backend_and_its_peer_is_the_frontend_whether_it_waits_or_not() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let server = server(Protocol::Tcp, family);
            let service = ServicePort::new(&datapath, 1, Protocol::Tcp, &[server]);
            let frontend = service.at(family.cluster_ip(80));
            for dial in [dial, dial_nonblocking] {
                let seen = counts(&datapath, Counter::GetpeernameReversed, 1, || {
                    counts(&datapath, Counter::ConnectTranslated, 1, || dial(frontend))
                });
                assert_eq!(
                    seen.expect("a connection"),
                    Seen {
                        server,
                        peer: frontend
                    },
                    "{family:?}"
                );
            }
        }
        assert_eq!(count(&datapath, Counter::SocketHole), 0);
        assert_eq!(count(&datapath, Counter::ReverseFull), 0);
    });
}

#[test]
fn unconnected_udp_is_answered_from_the_frontend() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let server = server(Protocol::Udp, family);
            let frontend = ServicePort::new(&datapath, 1, Protocol::Udp, &[server]).at(family.cluster_ip(53));
            let seen = counts(&datapath, Counter::RecvmsgReversed, 1, || {
                counts(&datapath, Counter::SendmsgTranslated, 1, || {
                    ask(Protocol::Udp, family, frontend)
                })
            });
            assert_eq!(
                seen.expect("an answer"),
                Seen {
                    server,
                    peer: frontend
                },
                "{family:?}"
            );
        }
    });
}

#[test]
fn connected_udp_talks_to_the_frontend_throughout() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let server = server(Protocol::Udp, family);
            let frontend = ServicePort::new(&datapath, 1, Protocol::Udp, &[server]).at(family.cluster_ip(53));
            let client = udp_client(family);
            counts(&datapath, Counter::ConnectTranslated, 1, || {
                client.connect(frontend).expect("connected");
            });
            assert_eq!(
                client.peer_addr().expect("a peer"),
                frontend,
                "getpeername, {family:?}"
            );
            counts(&datapath, Counter::SendmsgTranslated, 0, || {
                client.send(b"who").expect("sent");
                let seen = receive(&client).expect("an answer");
                assert_eq!(
                    seen,
                    Seen {
                        server,
                        peer: frontend
                    },
                    "recvfrom, {family:?}"
                );
            });
        }
    });
}

#[test]
fn connected_udp_keeps_its_backend_when_the_service_changes_and_the_next_connect_does_not() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let (old, new) = (server(Protocol::Udp, family), server(Protocol::Udp, family));
            let service = ServicePort::new(&datapath, 1, Protocol::Udp, &[old]);
            let frontend = service.at(family.cluster_ip(53));
            let client = udp_client(family);
            let ask = || {
                client.send(b"who").expect("sent");
                receive(&client).expect("an answer")
            };
            client.connect(frontend).expect("connected");
            assert_eq!(
                ask(),
                Seen {
                    server: old,
                    peer: frontend
                },
                "{family:?}"
            );
            service.switch(2, &[new]);
            assert_eq!(
                ask(),
                Seen {
                    server: old,
                    peer: frontend
                },
                "still, {family:?}"
            );
            client.connect(frontend).expect("connected again");
            assert_eq!(
                ask(),
                Seen {
                    server: new,
                    peer: frontend
                },
                "now, {family:?}"
            );
            assert_eq!(client.peer_addr().expect("a peer"), frontend, "{family:?}");
        }
    });
}

#[test]
fn every_backend_is_used_and_no_other() {
    isolated(|node| {
        let datapath = node.start();
        for (protocol, family) in [(Protocol::Tcp, Family::V4), (Protocol::Udp, Family::V6)] {
            let servers: Vec<SocketAddr> = (0..3).map(|_| server(protocol, family)).collect();
            let frontend = ServicePort::new(&datapath, 1, protocol, &servers).at(family.cluster_ip(80));
            // That one of three is missed in 100 uniform draws has a probability below 1e-17.
            let seen: BTreeSet<SocketAddr> = (0..100)
                .map(|_| ask(protocol, family, frontend).expect("an answer").server)
                .collect();
            assert_eq!(seen, servers.into_iter().collect(), "{protocol:?}");
        }
    });
}

#[test]
fn families_are_served_apart_and_a_mapped_address_is_the_ipv4_one() {
    isolated(|node| {
        let datapath = node.start();
        let (v4, v6) = (
            server(Protocol::Tcp, Family::V4),
            server(Protocol::Tcp, Family::V6),
        );
        ServicePort::new(&datapath, 1, Protocol::Tcp, &[v4]).at(Family::V4.cluster_ip(80));
        ServicePort::new(&datapath, 2, Protocol::Tcp, &[v6]).at(Family::V6.cluster_ip(80));
        for (family, server) in [(Family::V4, v4), (Family::Mapped, v4), (Family::V6, v6)] {
            let seen = dial(family.cluster_ip(80)).expect("a connection");
            assert_eq!(
                seen,
                Seen {
                    server,
                    peer: family.cluster_ip(80)
                },
                "{family:?}"
            );
        }
    });
}

#[test]
fn connections_and_datagrams_are_counted_for_the_service_port_and_the_backend() {
    isolated(|node| {
        let datapath = node.start();
        let maps = datapath.maps();
        for (id, protocol, family) in [(7, Protocol::Tcp, Family::V4), (8, Protocol::Udp, Family::V6)] {
            let server = server(protocol, family);
            let frontend = ServicePort::new(&datapath, id, protocol, &[server]).at(family.cluster_ip(80));
            for _ in 0..3 {
                ask(protocol, family, frontend).expect("an answer");
            }
            let three = Traffic {
                connections: 3,
                ..Traffic::default()
            };
            assert_eq!(maps.service_traffic.get(id), three, "{protocol:?}");
            assert_eq!(
                maps.backend_traffic.get(backend_id(protocol, server)),
                three,
                "{protocol:?}"
            );
        }
        assert_eq!(maps.service_traffic.entries().len(), 2, "and for nobody else");
        assert_eq!(maps.backend_traffic.entries().len(), 2);
    });
}

#[test]
fn a_port_that_nobody_listens_on_behind_a_service_is_refused_by_its_host_not_by_us() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let closed = match family {
                Family::V6 => family.loopback(9),
                Family::V4 | Family::Mapped => Family::V4.loopback(9),
            };
            let frontend = ServicePort::new(&datapath, 1, Protocol::Tcp, &[closed]).at(family.cluster_ip(80));
            counts(&datapath, Counter::ConnectRefused, 0, || {
                counts(&datapath, Counter::ConnectTranslated, 1, || {
                    super::peers::refused(|| dial(frontend));
                });
            });
        }
    });
}
