//! What is noted of a socket goes with it.

use std::net::{SocketAddr, TcpStream};

use lb_abi::Counter;
use lb_loader::Datapath;

use super::{
    peers::{cookie, server, udp_client},
    world::{Family, Protocol, ServicePort, backend, count, counts},
};
use crate::support::isolated;

/// Most entries that the program removes.
const MOST_RELEASED: usize = 64;

/// Entries of SOCKET_REVNAT and of SOCKET_BACKEND.
fn noted(datapath: &Datapath) -> (usize, usize) {
    let maps = datapath.maps();
    let reverse = maps.socket_revnat.entries().expect("the map is read");
    let sockets = maps.socket_backend.entries().expect("the map is read");
    (reverse.len(), sockets.len())
}

/// This many service ports, at ports from 1 on of the ClusterIP, each with one backend of its own. Nobody listens
/// there: a datagram is sent all the same.
fn many(datapath: &Datapath, family: Family, count: u16) -> Vec<(SocketAddr, SocketAddr)> {
    let own = if family == Family::V6 {
        Family::V6
    } else {
        Family::V4
    };
    (1..=count)
        .map(|number| {
            let behind = own.loopback(20_000 + number);
            let service = ServicePort::new(datapath, number.into(), Protocol::Udp, &[behind]);
            (service.at(family.cluster_ip(number)), behind)
        })
        .collect()
}

#[test]
fn entries_of_a_closed_socket_are_gone() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let services = many(&datapath, family, 3);
            let client = udp_client(family);
            for (at, _) in services.iter().cycle().take(7) {
                client.send_to(b"who", *at).expect("sent");
            }
            assert_eq!(noted(&datapath), (3, 1), "{family:?}");
            let newest = datapath
                .maps()
                .socket_backend
                .get(&cookie(&client))
                .expect("the map is read");
            let (_, last) = services[2];
            assert_eq!(
                newest,
                Some(backend(Protocol::Udp, last)),
                "the last that was new"
            );
            counts(&datapath, Counter::SocketReleased, 1, || drop(client));
            assert_eq!(noted(&datapath), (0, 0), "{family:?}");
        }
    });
}

#[test]
fn tcp_and_connected_udp_are_released_as_well() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let (tcp, udp) = (server(Protocol::Tcp, family), server(Protocol::Udp, family));
            let at = family.cluster_ip(80);
            ServicePort::new(&datapath, 1, Protocol::Tcp, &[tcp]).at(at);
            ServicePort::new(&datapath, 2, Protocol::Udp, &[udp]).at(at);
            let stream = TcpStream::connect(at).expect("a connection");
            let client = udp_client(family);
            client.connect(at).expect("connected");
            assert_eq!(noted(&datapath), (2, 2), "{family:?}");
            drop(stream);
            assert_eq!(noted(&datapath), (1, 1), "{family:?}");
            drop(client);
            assert_eq!(noted(&datapath), (0, 0), "{family:?}");
        }
    });
}

#[test]
fn thousands_of_sockets_leave_nothing() {
    isolated(|node| {
        let datapath = node.start();
        for family in [Family::V4, Family::V6] {
            let services = many(&datapath, family, 2);
            let released = count(&datapath, Counter::SocketReleased);
            for _ in 0..2000 {
                let client = udp_client(family);
                for (at, _) in &services {
                    client.send_to(b"who", *at).expect("sent");
                }
            }
            assert_eq!(noted(&datapath), (0, 0), "{family:?}");
            assert_eq!(count(&datapath, Counter::SocketReleased) - released, 2000);
        }
        assert_eq!(count(&datapath, Counter::ReverseFull), 0);
    });
}

#[test]
fn a_descriptor_that_is_left_keeps_the_socket() {
    isolated(|node| {
        let datapath = node.start();
        many(&datapath, Family::V4, 1);
        let client = udp_client(Family::V4);
        client.send_to(b"who", Family::V4.cluster_ip(1)).expect("sent");
        let copy = client.try_clone().expect("a descriptor");
        drop(client);
        assert_eq!(noted(&datapath), (1, 1));
        drop(copy);
        assert_eq!(noted(&datapath), (0, 0));
    });
}

#[test]
fn of_more_backends_than_the_bound_the_newest_go_and_the_oldest_stay_to_be_forgotten() {
    isolated(|node| {
        let datapath = node.start();
        const MORE: usize = 6;
        let services = many(
            &datapath,
            Family::V4,
            u16::try_from(MOST_RELEASED + MORE).expect("a few"),
        );
        let client = udp_client(Family::V4);
        for (at, _) in &services {
            client.send_to(b"who", *at).expect("sent");
        }
        assert_eq!(noted(&datapath), (MOST_RELEASED + MORE, 1));
        drop(client);
        assert_eq!(noted(&datapath), (MORE, 0));
        let left = datapath.maps().socket_revnat.entries().expect("the map is read");
        for (_, behind) in services.iter().take(MORE) {
            let oldest = backend(Protocol::Udp, *behind);
            assert!(
                left.iter().any(|(key, _)| key.backend == oldest),
                "{behind} is left"
            );
        }
    });
}

#[test]
fn an_entry_that_is_missing_ends_the_walk_and_nothing_else() {
    isolated(|node| {
        let datapath = node.start();
        let services = many(&datapath, Family::V4, 3);
        let client = udp_client(Family::V4);
        for (at, _) in &services {
            client.send_to(b"who", *at).expect("sent");
        }
        let maps = datapath.maps();
        let (_, middle) = services[1];
        let entries = maps.socket_revnat.entries().expect("the map is read");
        let (key, _) = entries
            .iter()
            .find(|(key, _)| key.backend == backend(Protocol::Udp, middle))
            .expect("an entry of each backend");
        maps.socket_revnat.delete(key).expect("forgotten");
        drop(client);
        assert_eq!(noted(&datapath), (1, 0), "the oldest is left to be forgotten");
    });
}

#[test]
fn sockets_without_services_are_not_counted() {
    isolated(|node| {
        let datapath = node.start();
        let server = server(Protocol::Udp, Family::V4);
        let client = udp_client(Family::V4);
        client.send_to(b"who", server).expect("sent");
        counts(&datapath, Counter::SocketReleased, 0, || drop(client));
        assert_eq!(noted(&datapath), (0, 0));
    });
}
