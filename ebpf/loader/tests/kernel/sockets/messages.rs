//! sendmsg, sendmmsg and their counterparts; what a UDP socket sees of several services.

use std::{
    collections::BTreeSet,
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::fd::AsRawFd as _,
};

use lb_abi::Counter;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrLike as _, SockaddrStorage, recvmmsg, recvmsg, sendmmsg, sendmsg,
};

use super::{
    peers::{Seen, identity, receive, refused, server, udp_client},
    world::{Family, Protocol, ServicePort, backend_id, counts},
};
use crate::support::isolated;

fn shown(address: Option<SockaddrStorage>) -> SocketAddr {
    let address = address.expect("a source");
    let v4 = address
        .as_sockaddr_in()
        .map(|v4| SocketAddr::V4(SocketAddrV4::from(*v4)));
    let v6 = || {
        address
            .as_sockaddr_in6()
            .map(|v6| SocketAddr::V6(SocketAddrV6::from(*v6)))
    };
    v4.or_else(v6)
        .unwrap_or_else(|| panic!("an address of family {:?}", address.family()))
}

/// Sends one datagram to each by one call, and returns how many were sent.
fn send_all(client: &UdpSocket, to: &[SocketAddr]) -> io::Result<usize> {
    let addresses: Vec<Option<SockaddrStorage>> = to.iter().map(|to| Some((*to).into())).collect();
    let slices = vec![[IoSlice::new(b"who")]; to.len()];
    let mut headers = MultiHeaders::preallocate(to.len(), None);
    let sent = sendmmsg(
        client.as_raw_fd(),
        &mut headers,
        &slices,
        &addresses,
        [],
        MsgFlags::empty(),
    )?;
    Ok(sent.count())
}

/// Receives this many datagrams by one call.
fn receive_all(client: &UdpSocket, count: usize) -> Vec<Seen> {
    let mut buffers = vec![[0_u8; 64]; count];
    let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
        .iter_mut()
        .map(|buffer| [IoSliceMut::new(buffer)])
        .collect();
    let mut headers = MultiHeaders::preallocate(count, None);
    let received = recvmmsg(
        client.as_raw_fd(),
        &mut headers,
        slices.iter_mut(),
        MsgFlags::empty(),
        None,
    );
    let received: Vec<(usize, SocketAddr)> = received
        .expect("answers")
        .map(|message| (message.bytes, shown(message.address)))
        .collect();
    let said = |buffer: &[u8], length| String::from_utf8_lossy(&buffer[..length]).into_owned();
    received
        .into_iter()
        .zip(&buffers)
        .map(|((length, peer), buffer)| {
            let server = identity(&said(buffer, length)).expect("a server");
            Seen { server, peer }
        })
        .collect()
}

#[test]
fn sendmsg_is_answered_from_the_frontend_as_recvmsg_shows_it() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let server = server(Protocol::Udp, family);
            let frontend = ServicePort::new(&datapath, 1, Protocol::Udp, &[server]).at(family.cluster_ip(53));
            let client = udp_client(family);
            counts(&datapath, Counter::SendmsgTranslated, 1, || {
                let to = SockaddrStorage::from(frontend);
                let data = [IoSlice::new(b"who")];
                sendmsg(client.as_raw_fd(), &data, &[], MsgFlags::empty(), Some(&to)).expect("sent");
            });
            let mut buffer = [0; 64];
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let received =
                recvmsg::<SockaddrStorage>(client.as_raw_fd(), &mut slices, None, MsgFlags::empty());
            let source = shown(received.expect("an answer").address);
            assert_eq!(source, frontend, "{family:?}, of {server}");
        }
    });
}

#[test]
fn sendmmsg_sends_each_datagram_to_its_own_service() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let servers = [(); 3].map(|()| server(Protocol::Udp, family));
            let [one, other, direct] = servers;
            let first = ServicePort::new(&datapath, 1, Protocol::Udp, &[one]).at(family.cluster_ip(53));
            let second = ServicePort::new(&datapath, 2, Protocol::Udp, &[other]).at(family.cluster_ip(123));
            let directly = match (family, direct) {
                (Family::Mapped, direct) => family.loopback(direct.port()),
                (Family::V4 | Family::V6, direct) => direct,
            };
            let client = udp_client(family);
            let to = [first, second, directly, first];
            counts(&datapath, Counter::SendmsgTranslated, 3, || {
                assert_eq!(send_all(&client, &to).expect("sent"), to.len(), "{family:?}");
            });
            let mut seen = receive_all(&client, to.len());
            seen.sort_by_key(|seen| seen.server.port());
            let mut expected = [(one, first), (one, first), (other, second), (direct, directly)]
                .map(|(server, peer)| Seen { server, peer });
            expected.sort_by_key(|seen| seen.server.port());
            assert_eq!(seen, expected, "{family:?}");
        }
    });
}

#[test]
fn sendmmsg_ends_at_a_datagram_that_is_refused() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let server = server(Protocol::Udp, family);
            let good = ServicePort::new(&datapath, 1, Protocol::Udp, &[server]).at(family.cluster_ip(53));
            let empty = ServicePort::new(&datapath, 2, Protocol::Udp, &[]).at(family.cluster_ip(123));
            let client = udp_client(family);
            assert_eq!(
                send_all(&client, &[good, empty, good]).expect("the first is sent"),
                1
            );
            assert_eq!(receive(&client).expect("an answer"), Seen { server, peer: good });
            counts(&datapath, Counter::SendmsgTranslated, 0, || {
                refused(|| send_all(&client, &[empty, good]));
            });
        }
    });
}

#[test]
fn one_socket_with_two_services_sees_each_answer_from_its_frontend() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let (one, other) = (server(Protocol::Udp, family), server(Protocol::Udp, family));
            let first = ServicePort::new(&datapath, 1, Protocol::Udp, &[one]).at(family.cluster_ip(53));
            let second = ServicePort::new(&datapath, 2, Protocol::Udp, &[other]).at(family.cluster_ip(123));
            let client = udp_client(family);
            for (peer, server) in [(first, one), (second, other), (first, one)] {
                client.send_to(b"who", peer).expect("sent");
                assert_eq!(
                    receive(&client).expect("an answer"),
                    Seen { server, peer },
                    "{family:?}"
                );
            }
        }
    });
}

#[test]
fn of_two_frontends_of_one_backend_the_one_asked_last_is_shown() {
    isolated(|node| {
        let datapath = node.start();
        let server = server(Protocol::Udp, Family::V4);
        let service = ServicePort::new(&datapath, 1, Protocol::Udp, &[server]);
        let frontends = [53, 5353].map(|port| service.at(Family::V4.cluster_ip(port)));
        let client = udp_client(Family::V4);
        let entries = || {
            datapath
                .maps()
                .socket_revnat
                .entries()
                .expect("the map is read")
                .len()
        };
        for round in 0..3 {
            for peer in frontends {
                client.send_to(b"who", peer).expect("sent");
                assert_eq!(
                    receive(&client).expect("an answer"),
                    Seen { server, peer },
                    "{round}"
                );
                assert_eq!(entries(), 1, "one entry for one backend");
            }
        }
    });
}

#[test]
fn answers_are_reversed_for_the_socket_that_has_asked_the_frontend() {
    isolated(|node| {
        let datapath = node.start();
        for family in [Family::V4, Family::V6] {
            let server = server(Protocol::Udp, family);
            let frontend = ServicePort::new(&datapath, 1, Protocol::Udp, &[server]).at(family.cluster_ip(53));
            let (through, directly) = (udp_client(family), udp_client(family));
            for (client, peer) in [(&through, frontend), (&directly, server)] {
                client.send_to(b"who", peer).expect("sent");
                assert_eq!(
                    receive(client).expect("an answer"),
                    Seen { server, peer },
                    "{family:?}"
                );
            }
        }
    });
}

#[test]
fn a_socket_of_both_families_can_ask_services_of_both() {
    isolated(|node| {
        let datapath = node.start();
        let (v4, v6) = (
            server(Protocol::Udp, Family::V4),
            server(Protocol::Udp, Family::V6),
        );
        ServicePort::new(&datapath, 1, Protocol::Udp, &[v4]).at(Family::V4.cluster_ip(53));
        ServicePort::new(&datapath, 2, Protocol::Udp, &[v6]).at(Family::V6.cluster_ip(53));
        let client = udp_client(Family::V6);
        for (family, server) in [(Family::Mapped, v4), (Family::V6, v6), (Family::Mapped, v4)] {
            let peer = family.cluster_ip(53);
            client.send_to(b"who", peer).expect("sent");
            assert_eq!(
                receive(&client).expect("an answer"),
                Seen { server, peer },
                "{family:?}"
            );
        }
    });
}

#[test]
fn one_socket_is_one_conversation_and_each_socket_another() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let servers = [0; 3].map(|_| server(Protocol::Udp, family));
            let other = server(Protocol::Udp, family);
            let frontend = ServicePort::new(&datapath, 1, Protocol::Udp, &servers).at(family.cluster_ip(53));
            let beside = ServicePort::new(&datapath, 2, Protocol::Udp, &[other]).at(family.cluster_ip(123));
            let ask = |client: &UdpSocket, peer| {
                client.send_to(b"who", peer).expect("sent");
                let seen = receive(client).expect("an answer");
                assert_eq!(seen.peer, peer, "{family:?}");
                seen.server
            };
            let mut reached = BTreeSet::new();
            for _ in 0..20 {
                let client = udp_client(family);
                let first = ask(&client, frontend);
                for _ in 0..10 {
                    assert_eq!(ask(&client, frontend), first, "{family:?}");
                    assert_eq!(ask(&client, beside), other, "{family:?}");
                }
                reached.insert(first);
                drop(client);
                let left = datapath.maps().chosen.entries().expect("the map is read");
                assert!(left.is_empty(), "{family:?}: {left:?}");
            }
            assert!(reached.len() > 1, "{family:?}: 20 sockets on one of three");
        }
    });
}

#[test]
fn a_socket_leaves_a_backend_that_serves_no_more() {
    isolated(|node| {
        let datapath = node.start();
        let servers = [0; 2].map(|_| server(Protocol::Udp, Family::V4));
        let frontend = ServicePort::new(&datapath, 1, Protocol::Udp, &servers).at(Family::V4.cluster_ip(53));
        let client = udp_client(Family::V4);
        client.send_to(b"who", frontend).expect("sent");
        let Seen { server: first, .. } = receive(&client).expect("an answer");
        let left = servers
            .into_iter()
            .find(|server| *server != first)
            .expect("one of two");
        ServicePort::new(&datapath, 1, Protocol::Udp, &[left]);
        let maps = datapath.maps();
        maps.backends
            .delete(&backend_id(Protocol::Udp, first))
            .expect("it serves no more");
        for _ in 0..5 {
            client.send_to(b"who", frontend).expect("sent");
            assert_eq!(receive(&client).expect("an answer").server, left);
        }
    });
}
