//! Who is sent to the same backend, and for how long. The client is a network namespace.

use std::net::SocketAddr;

use lb_abi::{Affinity, AffinityKey, Frontend, SlotKey};
use lb_flow::affinity_of_netns;
use lb_loader::Datapath;
use nix::time::{ClockId, clock_gettime};

use super::{
    peers::{ask, elsewhere, netns_cookie, refused, serve, server, udp_client},
    world::{Family, Protocol, ServicePort, backend_id},
};
use crate::support::isolated;

const SECONDS: u32 = 100;
/// How often a client asks: that two of two backends look like one has a probability below 1e-9.
const OFTEN: usize = 31;

/// A service port with affinity, and what its clients know of it.
struct Sticky<'a> {
    datapath: &'a Datapath,
    service: ServicePort<'a>,
    protocol: Protocol,
    family: Family,
    servers: [SocketAddr; 2],
}

impl<'a> Sticky<'a> {
    fn new(datapath: &'a Datapath, protocol: Protocol, family: Family) -> Self {
        let servers = [(); 2].map(|()| server(protocol, family));
        let service = ServicePort::new(datapath, 1, protocol, &servers);
        let this = Self {
            datapath,
            service,
            protocol,
            family,
            servers,
        };
        let frontend = Frontend {
            internal: service.id,
            affinity_seconds: SECONDS,
            ..Frontend::default()
        };
        service.frontend(this.at(), frontend);
        this
    }

    fn at(&self) -> SocketAddr {
        self.family.cluster_ip(80)
    }

    /// Whose answer a client gets.
    fn ask(&self) -> SocketAddr {
        ask(self.protocol, self.family, self.at())
            .expect("an answer")
            .server
    }

    /// Asserts that a client gets the answers of one server only.
    #[track_caller]
    fn asks_only(&self, server: SocketAddr) {
        for _ in 0..OFTEN {
            assert_eq!(self.ask(), server, "{:?}, {:?}", self.protocol, self.family);
        }
    }

    /// Asserts that a client gets the answers of both.
    #[track_caller]
    fn asks_both(&self, mut before: impl FnMut()) {
        let mut seen: Vec<SocketAddr> = Vec::new();
        for _ in 0..OFTEN {
            before();
            seen.push(self.ask());
        }
        for server in self.servers {
            assert!(seen.contains(&server), "{server} was never chosen");
        }
    }

    fn other(&self, server: SocketAddr) -> SocketAddr {
        let [first, second] = self.servers;
        if server == first { second } else { first }
    }

    fn key(&self) -> AffinityKey {
        affinity_of_netns(self.service.id, netns_cookie())
    }

    fn kept(&self) -> Option<Affinity> {
        self.datapath
            .maps()
            .affinity
            .get(&self.key())
            .expect("the map is read")
    }

    fn keep(&self, server: SocketAddr, ago: u32) {
        let backend = backend_id(self.protocol, server);
        let value = Affinity {
            backend,
            seconds: now() - ago,
        };
        self.datapath
            .maps()
            .affinity
            .put(&self.key(), &value)
            .expect("written");
    }

    fn forget(&self) {
        self.datapath
            .maps()
            .affinity
            .delete(&self.key())
            .expect("removed");
    }
}

/// Seconds since the machine started.
fn now() -> u32 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    u32::try_from(time.tv_sec()).expect("136 years")
}

/// Runs for all that a client can be.
fn for_all(datapath: &Datapath, run: impl Fn(&Sticky<'_>)) {
    for family in Family::ALL {
        for protocol in Protocol::BOTH {
            let sticky = Sticky::new(datapath, protocol, family);
            sticky.forget();
            run(&sticky);
        }
    }
}

#[test]
fn a_client_stays_with_its_backend_and_every_connection_renews_that() {
    isolated(|node| {
        let datapath = node.start();
        for_all(&datapath, |sticky| {
            sticky.asks_both(|| sticky.forget());
            let server = sticky.ask();
            sticky.asks_only(server);
            // Half of its time ago; the next connection is now, give or take the second that a coarse clock is late.
            for server in sticky.servers {
                sticky.keep(server, SECONDS / 2);
                assert_eq!(sticky.ask(), server);
                let kept = sticky.kept().expect("an entry");
                assert_eq!(kept.backend, backend_id(sticky.protocol, server));
                assert!(now().abs_diff(kept.seconds) <= 1, "{kept:?} at {}", now());
            }
        });
    });
}

#[test]
fn it_ends_after_its_time() {
    isolated(|node| {
        let datapath = node.start();
        for_all(&datapath, |sticky| {
            let [first, _] = sticky.servers;
            sticky.asks_both(|| sticky.keep(first, SECONDS + 2));
        });
    });
}

#[test]
fn a_backend_that_is_no_member_of_the_generation_is_left_though_it_is_still_a_backend() {
    isolated(|node| {
        let datapath = node.start();
        for_all(&datapath, |sticky| {
            let server = sticky.ask();
            let other = sticky.other(server);
            sticky.service.switch(2, &[other]);
            let id = backend_id(sticky.protocol, server);
            let maps = datapath.maps();
            assert!(
                maps.backends.get(&id).expect("the map is read").is_some(),
                "another's backend, say"
            );
            sticky.asks_only(other);
            // It comes back: the client stays where it is now.
            sticky.service.switch(3, &sticky.servers);
            sticky.asks_only(other);
        });
    });
}

#[test]
fn a_member_that_is_gone_from_the_backends_is_left() {
    isolated(|node| {
        let datapath = node.start();
        for_all(&datapath, |sticky| {
            let [gone, other] = sticky.servers;
            let id = backend_id(sticky.protocol, gone);
            // Torn: the mark is still there, and no slot has it.
            sticky.service.switch(2, &[other]);
            let mark = SlotKey::member(sticky.service.id, 2, id);
            datapath.maps().slots.put(&mark, &id).expect("the mark is put");
            sticky.keep(gone, 0);
            assert_eq!(sticky.ask(), gone, "by its mark alone");
            datapath.maps().backends.delete(&id).expect("the backend goes");
            sticky.asks_only(other);
        });
    });
}

#[test]
fn a_service_that_has_lost_all_refuses_its_old_clients_as_well() {
    isolated(|node| {
        let datapath = node.start();
        for_all(&datapath, |sticky| {
            sticky.ask();
            sticky.service.switch(2, &[]);
            refused(|| ask(sticky.protocol, sticky.family, sticky.at()));
        });
    });
}

#[test]
fn without_affinity_nothing_is_kept() {
    isolated(|node| {
        let datapath = node.start();
        for_all(&datapath, |sticky| {
            sticky.service.at(sticky.at());
            sticky.asks_both(|| ());
            assert_eq!(sticky.kept(), None);
        });
    });
}

#[test]
fn each_network_namespace_is_a_client_of_its_own() {
    isolated(|node| {
        let datapath = node.start();
        for_all(&datapath, |sticky| {
            let [first, second] = sticky.servers;
            sticky.keep(first, 0);
            elsewhere(|| {
                // The same addresses, with servers of this namespace.
                for server in sticky.servers {
                    serve(sticky.protocol, server);
                }
                sticky.keep(second, 0);
                sticky.asks_only(second);
            });
            sticky.asks_only(first);
        });
        let clients = datapath.maps().affinity.entries().expect("the map is read").len();
        assert_eq!(clients, 1 + Family::ALL.len() * Protocol::BOTH.len());
    });
}

#[test]
fn a_connected_socket_is_not_moved_and_a_datagram_without_a_connection_is_one() {
    isolated(|node| {
        let datapath = node.start();
        let sticky = Sticky::new(&datapath, Protocol::Udp, Family::V4);
        let [first, second] = sticky.servers;
        sticky.keep(first, 0);
        let client = udp_client(Family::V4);
        client.connect(sticky.at()).expect("connected");
        sticky.keep(second, 0);
        client.send(b"who").expect("sent");
        assert_eq!(super::peers::receive(&client).expect("an answer").server, first);
        assert_eq!(sticky.ask(), second);
    });
}
