//! Which flows and sockets go, one by one.

use lb_abi::{Address, Port};

use super::*;

fn at(text: &str) -> TransportAddress {
    let socket: SocketAddr = text.parse().expect("an address");
    TransportAddress {
        protocol: Protocol::Udp,
        address: socket.ip(),
        port: socket.port(),
    }
}

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn batch(departed: &[(ServiceId, &[&str], &str, BackendId)]) -> Batch {
    let mut batch = Batch::default();
    for (service, frontends, backend, id) in departed {
        let departed = Departed {
            service: *service,
            frontends: frontends.iter().map(|text| at(text)).collect(),
            backend: at(backend),
            id: *id,
        };
        batch.add(departed, 2);
    }
    batch
}

fn tuple(source: &str, destination: &str) -> Tuple {
    let (source, destination) = (socket(source), socket(destination));
    Tuple {
        source: source.ip().into(),
        destination: destination.ip().into(),
        source_port: Port::new(source.port()),
        destination_port: Port::new(destination.port()),
        protocol: UDP,
        pad: [0; 3],
    }
}

/// Both entries of a flow.
fn flow(service: ServiceId, backend: BackendId, vip: &str, to: &str) -> [(Tuple, Flow); 2] {
    const CLIENT: &str = "10.0.9.9:4000";
    let value = |to, flags| Flow {
        to,
        seen: 0,
        last_seen: 0,
        service,
        backend,
        flags,
        pad: 0,
        claim: 0,
    };
    [
        (tuple(CLIENT, vip), value(tuple(CLIENT, to), 0)),
        (tuple(to, CLIENT), value(tuple(vip, CLIENT), flow_flags::REPLY)),
    ]
}

#[track_caller]
fn check(batch: &Batch, entries: [(Tuple, Flow); 2], there: &[(BackendId, &str)], goes: bool) {
    let there = there.iter().map(|(id, text)| (*id, socket(text))).collect();
    for (key, flow) in entries {
        assert_eq!(batch.flow_goes(&key, &flow, &there), goes, "{key:?}");
    }
}

const VIP: &str = "10.96.0.1:53";

#[test]
fn both_entries_of_a_flow_of_a_backend_that_has_departed_go_and_no_others() {
    let batch = batch(&[(3, &[VIP], "10.0.0.1:5353", 7)]);
    check(&batch, flow(3, 7, VIP, "10.0.0.1:5353"), &[], true);
    check(&batch, flow(4, 7, VIP, "10.0.0.1:5353"), &[], false);
    check(&batch, flow(3, 8, VIP, "10.0.0.2:5353"), &[], false);
    // The number is another backend's by now.
    check(&batch, flow(3, 7, VIP, "10.0.0.2:5353"), &[], false);
    let [(mut key, value), _] = flow(3, 7, VIP, "10.0.0.1:5353");
    key.protocol = lb_abi::TCP;
    assert!(!batch.flow_goes(&key, &value, &HashMap::new()), "TCP");
}

#[test]
fn of_those_that_are_not_known_everything_goes_that_nobody_has() {
    for batch in [
        batch(&[(0, &[], "10.0.0.1:5353", 7)]),
        batch(&[
            (1, &[], "10.0.0.5:53", 1),
            (1, &[], "10.0.0.6:53", 2),
            (1, &[], "10.0.0.7:53", 3),
        ]),
    ] {
        check(&batch, flow(3, 7, VIP, "10.0.0.1:5353"), &[], true);
        check(
            &batch,
            flow(3, 7, VIP, "10.0.0.1:5353"),
            &[(7, "10.0.0.2:5353")],
            true,
        );
        check(
            &batch,
            flow(3, 7, VIP, "10.0.0.1:5353"),
            &[(7, "10.0.0.1:5353")],
            false,
        );
    }
}

fn noted(cookie: u64, frontend: &str, backend: &str) -> (ReverseKey, Remembered) {
    let to = socket(backend);
    let key = ReverseKey {
        cookie,
        backend: Backend {
            address: to.ip().into(),
            port: Port::new(to.port()),
            protocol: UDP,
            flags: 0,
        },
        pad: 0,
    };
    let previous = Backend {
        address: Address::v6([0; 16]),
        port: Port::new(0),
        protocol: 0,
        flags: 0,
    };
    let frontend = at(frontend).frontend_key();
    (key, Remembered { frontend, previous })
}

#[track_caller]
fn check_sockets(batch: &Batch, noted: &[(ReverseKey, Remembered)], there: &[&str], expected: &[u64]) {
    let there = (1..).zip(there.iter().map(|text| socket(text))).collect();
    let exact = at("192.0.2.1:30053").frontend_key();
    let sockets = batch
        .sockets(noted, &there, |key| Ok::<_, ()>(*key == exact))
        .expect("no errors");
    let mut cookies: Vec<u64> = sockets.into_values().flatten().collect();
    cookies.sort_unstable();
    assert_eq!(cookies, expected);
}

#[test]
fn sockets_go_that_asked_for_a_frontend_of_the_service_and_got_this_backend() {
    let batch = batch(&[(3, &[VIP], "10.0.0.1:5353", 7)]);
    let sockets = [
        noted(1, VIP, "10.0.0.1:5353"),
        noted(2, VIP, "10.0.0.2:5353"),
        noted(3, "10.96.0.2:53", "10.0.0.1:5353"),
    ];
    check_sockets(&batch, &sockets, &[], &[1]);
}

#[test]
fn a_node_port_is_asked_for_at_any_address_unless_somebody_has_that_very_one() {
    let batch = batch(&[(3, &["0.0.0.0:30053"], "10.0.0.1:5353", 7)]);
    let sockets = [
        noted(1, "127.0.0.1:30053", "10.0.0.1:5353"),
        noted(2, "192.0.2.1:30053", "10.0.0.1:5353"),
        noted(3, "127.0.0.1:30054", "10.0.0.1:5353"),
        noted(4, "[::1]:30053", "10.0.0.1:5353"),
    ];
    check_sockets(&batch, &sockets, &[], &[1]);
}

#[test]
fn sockets_of_a_backend_that_nobody_has_go_where_no_more_is_known() {
    let mut batch = Batch::default();
    batch.add_unlisted();
    let sockets = [noted(1, VIP, "10.0.0.1:5353"), noted(2, VIP, "10.0.0.2:5353")];
    check_sockets(&batch, &sockets, &["10.0.0.2:5353"], &[1]);
}
