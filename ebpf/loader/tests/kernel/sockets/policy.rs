//! What is left alone: what is no service's, other scopes, source ranges, maps of another version, other cgroups.

use std::{fs, net::SocketAddr, path::Path};

use lb_abi::{ABI_VERSION, Counter, Frontend, Meta, address_flags, frontend_flags};

use super::{
    peers::{Seen, ask, dial, fails, refused, server, udp_client},
    world::{Family, Protocol, ServicePort, count, counts, put_address},
};
use crate::support::{isolated, overwrite_meta};

/// An address at which somebody listens, so that who is left alone gets there.
fn direct(protocol: Protocol, family: Family) -> (SocketAddr, SocketAddr) {
    let server = server(protocol, family);
    let named = if family == Family::Mapped {
        family.loopback(server.port())
    } else {
        server
    };
    (server, named)
}

const fn passed(protocol: Protocol) -> Counter {
    match protocol {
        Protocol::Tcp => Counter::ConnectPassed,
        Protocol::Udp => Counter::SendmsgPassed,
    }
}

#[test]
fn a_destination_that_is_no_frontend() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let (server, named) = direct(protocol, family);
                // A service at the same port of the same address, but of the other protocol.
                let [tcp, udp] = Protocol::BOTH;
                let other = if protocol == tcp { udp } else { tcp };
                ServicePort::missing(&datapath, 9, other).at(named);
                // Of UDP the server's answer passes, too.
                let expected = if protocol == tcp { 1 } else { 2 };
                let seen = counts(&datapath, passed(protocol), expected, || {
                    ask(protocol, family, named)
                });
                assert_eq!(
                    seen.expect("an answer"),
                    Seen { server, peer: named },
                    "{family:?}"
                );
            }
        }
        assert_eq!(count(&datapath, Counter::RecvmsgReversed), 0);
        assert_eq!(count(&datapath, Counter::GetpeernameReversed), 0);
    });
}

#[test]
fn a_frontend_that_has_no_service_port_inside() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let (server, named) = direct(protocol, family);
                let elsewhere = super::peers::server(protocol, family);
                let service = ServicePort::new(&datapath, 1, protocol, &[elsewhere]);
                let outside = Frontend {
                    external: service.id,
                    ..Frontend::default()
                };
                service.frontend(named, outside);
                assert_eq!(
                    ask(protocol, family, named).expect("an answer").server,
                    server,
                    "{family:?}"
                );
                let inside = Frontend {
                    internal: service.id,
                    ..Frontend::default()
                };
                service.frontend(named, inside);
                assert_eq!(
                    ask(protocol, family, named).expect("an answer").server,
                    elsewhere,
                    "{family:?}"
                );
            }
        }
    });
}

#[test]
fn the_internal_policy_is_what_sockets_see() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let (local, remote) = (server(protocol, family), server(protocol, family));
                let service = ServicePort::new(&datapath, 1, protocol, &[local]);
                ServicePort::new(&datapath, 2, protocol, &[local, remote]);
                let at = family.cluster_ip(80);
                let frontend = Frontend {
                    internal: 1,
                    external: 2,
                    ..Frontend::default()
                };
                service.frontend(at, frontend);
                // That two backends look like one in 30 uniform draws has a probability below 1e-9.
                for _ in 0..30 {
                    assert_eq!(ask(protocol, family, at).expect("an answer").server, local);
                }
                service.switch(2, &[]);
                refused(|| ask(protocol, family, at));
            }
        }
    });
}

#[test]
fn source_ranges_are_left_to_the_packet_programs_with_and_without_backends() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let (server, named) = direct(protocol, family);
                let elsewhere = super::peers::server(protocol, family);
                let service = ServicePort::new(&datapath, 1, protocol, &[elsewhere]);
                let frontend = Frontend {
                    internal: service.id,
                    external: service.id,
                    flags: frontend_flags::SOURCE_RANGES,
                    affinity_seconds: 0,
                };
                service.frontend(named, frontend);
                let deferred = || {
                    let seen = counts(&datapath, Counter::SocketDeferred, 1, || {
                        ask(protocol, family, named)
                    });
                    assert_eq!(
                        seen.expect("an answer"),
                        Seen { server, peer: named },
                        "{family:?}"
                    );
                };
                deferred();
                service.switch(2, &[]);
                deferred();
            }
        }
    });
}

#[test]
fn everything_while_meta_is_of_another_version() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let (server, named) = direct(protocol, family);
                ServicePort::missing(&datapath, 9, protocol).at(named);
                refused(|| ask(protocol, family, named));
                overwrite_meta(
                    node,
                    &Meta {
                        abi: ABI_VERSION + 1,
                        ..Meta::CURRENT
                    },
                );
                let seen = ask(protocol, family, named).expect("an answer");
                assert_eq!(seen, Seen { server, peer: named }, "{family:?}");
                overwrite_meta(node, &Meta::CURRENT);
            }
        }
    });
}

#[test]
fn other_cgroups_than_the_nodes_and_those_below_it() {
    isolated(|node| {
        let datapath = node.start();
        let server = server(Protocol::Tcp, Family::V4);
        let frontend = ServicePort::new(&datapath, 1, Protocol::Tcp, &[server]).at(Family::V4.cluster_ip(80));
        let cgroup = &node.options.cgroup;
        let pod = cgroup.join("pod");
        fs::create_dir(&pod).expect("a cgroup");
        let outside = cgroup.parent().expect("the cgroup is below the mount");
        let enter = |cgroup: &Path| fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter the cgroup");
        enter(&pod);
        assert_eq!(dial(frontend).expect("a connection").server, server);
        enter(outside);
        // No route leads to the ClusterIP.
        fails(libc::ENETUNREACH, || dial(frontend));
        enter(cgroup);
        assert_eq!(dial(frontend).expect("a connection").server, server);
        fs::remove_dir(&pod).expect("removed");
    });
}

#[test]
fn protocols_that_no_service_has() {
    isolated(|node| {
        use socket2::{Domain, Protocol as Number, Socket, Type};

        let datapath = node.start();
        // A ping socket, allowed to this group, connects at the same hook.
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").expect("ping is allowed");
        let at = Family::V4.loopback(80);
        put_address(&datapath, at.ip(), address_flags::VIP);
        refused(|| udp_client(Family::V4).connect(at));
        let ping = Socket::new(Domain::IPV4, Type::DGRAM, Some(Number::ICMPV4)).expect("a ping socket");
        ping.connect(&at.into()).expect("connected");
    });
}
