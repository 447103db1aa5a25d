//! No backend, unknown port, hole: ECONNREFUSED at once, from `connect` and from `sendmsg`.

use std::net::SocketAddr;

use lb_abi::{Counter, Service, SlotKey, address_flags};
use lb_loader::Datapath;

use super::{
    peers::{dial, dial_nonblocking, refused, server, udp_client},
    world::{Family, Protocol, ServicePort, backend, backend_id, count, counts, put_address},
};
use crate::support::isolated;

/// Asserts that a destination is refused to everybody: to TCP that waits and that does not, and to UDP that connects
/// and that does not.
#[track_caller]
fn refused_to_all(datapath: &Datapath, family: Family, to: SocketAddr, counted: [(Counter, u64); 2]) {
    let before = counted.map(|(counter, _)| count(datapath, counter));
    refused(|| dial(to));
    refused(|| dial_nonblocking(to));
    refused(|| udp_client(family).connect(to));
    refused(|| udp_client(family).send_to(b"who", to));
    for ((counter, expected), before) in counted.into_iter().zip(before) {
        assert_eq!(
            count(datapath, counter) - before,
            expected,
            "{counter:?}, {family:?}"
        );
    }
}

const BY_RULE: [(Counter, u64); 2] = [(Counter::ConnectRefused, 3), (Counter::SendmsgRefused, 1)];
const BY_HOLE: [(Counter, u64); 2] = [(Counter::SocketHole, 4), (Counter::ConnectRefused, 0)];

/// A service port of each protocol at the same address; their ids are `id` and the next.
fn pair(
    datapath: &Datapath,
    id: u32,
    at: SocketAddr,
    backends: impl Fn(Protocol) -> Vec<SocketAddr>,
) -> [ServicePort<'_>; 2] {
    [(id, Protocol::Tcp), (id + 1, Protocol::Udp)].map(|(id, protocol)| {
        let service = ServicePort::new(datapath, id, protocol, &backends(protocol));
        service.at(at);
        service
    })
}

#[test]
fn a_service_without_backends() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let at = family.cluster_ip(80);
            let services = pair(&datapath, 1, at, |_| Vec::new());
            refused_to_all(&datapath, family, at, BY_RULE);
            // And it is served again as soon as it has one.
            let [tcp, _] = services;
            let server = server(Protocol::Tcp, family);
            tcp.switch(2, &[server]);
            assert_eq!(dial(at).expect("a connection").server, server);
        }
        assert_eq!(count(&datapath, Counter::SocketHole), 0);
    });
}

#[test]
fn a_port_that_a_services_address_does_not_have() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let at = family.cluster_ip(80);
            pair(&datapath, 1, at, |protocol| vec![server(protocol, family)]);
            put_address(&datapath, at.ip(), address_flags::VIP);
            refused_to_all(&datapath, family, family.cluster_ip(81), BY_RULE);
            counts(&datapath, Counter::ConnectTranslated, 1, || dial(at)).expect("but not the one it has");
        }
    });
}

#[test]
fn a_hole_wherever_it_is() {
    isolated(|node| {
        let datapath = node.start();
        let maps = datapath.maps();
        for family in Family::ALL {
            let at = family.cluster_ip(80);
            let servers = Protocol::BOTH.map(|protocol| server(protocol, family));
            let [tcp, udp] = servers;
            let backends = |protocol| vec![if protocol == Protocol::Tcp { tcp } else { udp }];

            for service in pair(&datapath, 1, at, backends) {
                service.set(Service::default());
            }
            refused_to_all(&datapath, family, at, BY_HOLE);

            for service in pair(&datapath, 1, at, backends) {
                service.set(Service {
                    generation: 0,
                    slots: 1,
                });
            }
            refused_to_all(&datapath, family, at, BY_HOLE);

            for service in pair(&datapath, 1, at, backends) {
                maps.slots.delete(&service.slot(1, 0)).expect("the slot goes");
            }
            refused_to_all(&datapath, family, at, BY_HOLE);

            pair(&datapath, 1, at, backends);
            for (protocol, server) in Protocol::BOTH.into_iter().zip(servers) {
                maps.backends
                    .delete(&backend_id(protocol, server))
                    .expect("the backend goes");
            }
            refused_to_all(&datapath, family, at, BY_HOLE);

            let services = pair(&datapath, 1, at, backends);
            let other = if family == Family::V6 {
                Family::V4
            } else {
                Family::V6
            };
            for (protocol, service) in Protocol::BOTH.into_iter().zip(services) {
                let id = 1000 + service.id;
                let wrong = backend(protocol, other.loopback(80));
                maps.backends
                    .put(&id, &wrong)
                    .expect("a backend of the other family");
                let key: SlotKey = service.slot(1, 0);
                maps.slots.put(&key, &id).expect("its slot");
            }
            refused_to_all(&datapath, family, at, BY_HOLE);

            pair(&datapath, 1, at, backends);
            assert_eq!(dial(at).expect("with everything there").server, tcp, "{family:?}");
        }
    });
}

#[test]
fn a_frontend_whose_service_port_was_never_written() {
    isolated(|node| {
        let datapath = node.start();
        for family in Family::ALL {
            let at = family.cluster_ip(80);
            for protocol in Protocol::BOTH {
                ServicePort::missing(&datapath, 9, protocol).at(at);
            }
            refused_to_all(&datapath, family, at, BY_HOLE);
        }
    });
}
