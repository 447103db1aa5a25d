//! Cilium's bytes.

use super::*;

const SERVICES: u32 = 27;
const BACKENDS: u32 = 28;

/// `struct lb4_key`: address, port in network order, slot, protocol, scope, padding.
fn key(address: [u8; 4], port: u16, slot: u16, protocol: u8, scope: u8) -> Vec<u8> {
    let mut key = address.to_vec();
    key.extend(port.to_be_bytes());
    key.extend(slot.to_ne_bytes());
    key.extend([protocol, scope, 0, 0]);
    key
}

/// `struct lb4_service`.
fn value(backend: u32, count: u16, flags: u8, flags2: u8) -> Vec<u8> {
    let mut value = backend.to_ne_bytes().to_vec();
    value.extend(count.to_ne_bytes());
    value.extend(7_u16.to_be_bytes());
    value.extend([flags, flags2, 0, 0]);
    value
}

/// `struct lb4_backend` of v3: address, port, protocol, state, cluster, zone, padding.
fn backend(address: [u8; 4], port: u16) -> Vec<u8> {
    let mut value = address.to_vec();
    value.extend(port.to_be_bytes());
    value.extend([6, 0, 0, 0, 0, 0]);
    value
}

fn v3() -> [Map; 2] {
    [
        map(SERVICES, "cilium_lb4_serv", 12, 12),
        map(BACKENDS, "cilium_lb4_back", 4, 12),
    ]
}

/// Incident 2: 172.17.93.4:8080 leads to a pod that is no more.
fn incident() -> MemoryBytes {
    let mut bytes = MemoryBytes::default();
    bytes.put(
        SERVICES,
        &key([172, 17, 93, 4], 8080, 0, 0, 0),
        &value(0, 1, 0, 0),
    );
    bytes.put(
        SERVICES,
        &key([172, 17, 93, 4], 8080, 1, 0, 0),
        &value(5, 0, 0, 0),
    );
    bytes.put(
        BACKENDS,
        &5_u32.to_ne_bytes(),
        &backend([172, 16, 149, 220], 8080),
    );
    bytes
}

#[test]
fn the_service_of_incident_two_is_found_and_others_are_not() {
    let bytes = incident();
    let tables = recognise(&bytes, Whose::Cilium, &v3()).expect("known");
    assert_eq!(
        tables.ask(&bytes, &to("TCP 172.17.93.4:8080", From::Socket)),
        Answer::Backends {
            backends: backends(&["172.16.149.220:8080"]),
            holes: 0,
            only_if: None
        }
    );
    for other in [
        "TCP 172.17.93.4:8081",
        "TCP 172.17.93.5:8080",
        "TCP [fd00::1]:8080",
    ] {
        assert_eq!(
            tables.ask(&bytes, &to(other, From::Socket)),
            Answer::NotAService,
            "{other}"
        );
    }
    let frontends = tables.frontends(&bytes).expect("readable");
    assert!(frontends.complete);
    assert_eq!(
        frontends
            .found
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["TCP 172.17.93.4:8080"],
        "a slot is no frontend"
    );
    assert_eq!(tables.generation(), [SERVICES]);
}

#[test]
fn a_service_with_a_protocol_is_that_protocols_alone() {
    let mut bytes = MemoryBytes::default();
    bytes.empty(BACKENDS);
    bytes.put(SERVICES, &key([10, 96, 0, 10], 53, 0, 17, 0), &value(0, 0, 0, 0));
    let tables = recognise(&bytes, Whose::Cilium, &v3()).expect("known");
    assert_eq!(
        tables.ask(&bytes, &to("TCP 10.96.0.10:53", From::Socket)),
        Answer::NotAService
    );
    let refused = tables.ask(&bytes, &to("UDP 10.96.0.10:53", From::Socket));
    assert!(matches!(refused, Answer::Refused { .. }), "{refused}");
}

#[test]
fn two_scopes_are_two_sets() {
    const TWO_SCOPES: u8 = 1 << 5;
    let mut bytes = MemoryBytes::default();
    let address = [10, 96, 0, 1];
    bytes.put(SERVICES, &key(address, 80, 0, 6, 0), &value(0, 0, 4, TWO_SCOPES));
    bytes.put(SERVICES, &key(address, 80, 0, 6, 1), &value(0, 1, 0, TWO_SCOPES));
    bytes.put(SERVICES, &key(address, 80, 1, 6, 1), &value(9, 0, 0, 0));
    bytes.put(BACKENDS, &9_u32.to_ne_bytes(), &backend([10, 0, 0, 9], 8080));
    let tables = recognise(&bytes, Whose::Cilium, &v3()).expect("known");
    let inside = tables.ask(&bytes, &to("TCP 10.96.0.1:80", From::Socket));
    assert_eq!(inside.backends(), Some(&backends(&["10.0.0.9:8080"])));
    let outside = tables.ask(&bytes, &to("TCP 10.96.0.1:80", From::Outside));
    assert!(
        matches!(outside, Answer::Dropped { .. }),
        "externalTrafficPolicy Local: {outside}"
    );
}

#[test]
fn node_ports_external_addresses_and_proxies_have_conditions() {
    let mut bytes = MemoryBytes::default();
    bytes.put(SERVICES, &key([0; 4], 30_080, 0, 6, 0), &value(0, 1, 2, 0));
    bytes.put(SERVICES, &key([0; 4], 30_080, 1, 6, 0), &value(9, 0, 0, 0));
    bytes.put(SERVICES, &key([192, 0, 2, 9], 80, 0, 6, 0), &value(0, 1, 1, 0));
    bytes.put(SERVICES, &key([192, 0, 2, 9], 80, 1, 6, 0), &value(8, 0, 0, 0));
    bytes.put(SERVICES, &key([10, 96, 0, 7], 80, 0, 6, 0), &value(0, 1, 0, 4));
    bytes.put(BACKENDS, &9_u32.to_ne_bytes(), &backend([10, 0, 0, 9], 8080));
    let tables = recognise(&bytes, Whose::Cilium, &v3()).expect("known");
    match tables.ask(&bytes, &to("TCP 192.0.2.1:30080", From::Socket)) {
        Answer::Backends {
            only_if: Some(_),
            holes: 0,
            ..
        } => {}
        other => panic!("a node port: {other:?}"),
    }
    match tables.ask(&bytes, &to("TCP 192.0.2.9:80", From::Socket)) {
        Answer::Backends {
            only_if: Some(_),
            holes: 1,
            backends,
        } => assert!(backends.is_empty()),
        other => panic!("an external IP whose backend 8 is missing: {other:?}"),
    }
    let proxied = tables.ask(&bytes, &to("TCP 10.96.0.7:80", From::Socket));
    assert!(matches!(proxied, Answer::LeftToPackets { .. }), "{proxied}");
}

#[test]
fn older_backends_are_read_and_unknown_sizes_are_not() {
    let mut bytes = incident();
    bytes.put(31, &5_u16.to_ne_bytes(), &backend([172, 16, 149, 221], 8080)[..8]);
    bytes.put(32, &5_u32.to_ne_bytes(), &backend([172, 16, 149, 222], 8080)[..8]);
    for (id, key_size, value_size, expected) in [
        (31, 2, 8, "172.16.149.221:8080"),
        (32, 4, 8, "172.16.149.222:8080"),
    ] {
        let maps = [
            map(SERVICES, "cilium_lb4_serv", 12, 12),
            map(id, "cilium_lb4_back", key_size, value_size),
        ];
        let tables = recognise(&bytes, Whose::Cilium, &maps).expect("known");
        let answer = tables.ask(&bytes, &to("TCP 172.17.93.4:8080", From::Socket));
        assert_eq!(answer.backends(), Some(&backends(&[expected])));
    }
    for (services, backends) in [((10, 8), (4, 12)), ((12, 12), (4, 16)), ((12, 16), (4, 12))] {
        let maps = [
            map(1, "cilium_lb4_serv", services.0, services.1),
            map(2, "cilium_lb4_back", backends.0, backends.1),
        ];
        assert_eq!(
            recognise(&bytes, Whose::Cilium, &maps),
            None,
            "{services:?} {backends:?}"
        );
    }
    let known = Tables::layout_of(&owner(Whose::Cilium), &v3()[1]);
    assert_eq!(known.as_deref(), Some("Cilium backends v3 (IPv4)"));
    let unknown = map(1, "cilium_lb4_serv", 10, 8);
    assert_eq!(Tables::layout_of(&owner(Whose::Cilium), &unknown), None);
    for (key, value, expected) in [
        (2, 6, "reverse NAT (IPv4)"),
        (16, 8, "reverse NAT of sockets (IPv4)"),
    ] {
        let layout = Tables::layout_of(&owner(Whose::Cilium), &map(1, "cilium_lb4_reve", key, value));
        assert_eq!(layout, Some(format!("Cilium {expected}")));
    }
}

#[test]
fn ipv6_is_read_from_maps_of_its_own() {
    let mut bytes = MemoryBytes::default();
    let address: std::net::Ipv6Addr = "fd00::1".parse().expect("an address");
    let key = |slot: u16| {
        let mut key = address.octets().to_vec();
        key.extend(80_u16.to_be_bytes());
        key.extend(slot.to_ne_bytes());
        key.extend([6, 0, 0, 0]);
        key
    };
    bytes.put(1, &key(0), &value(0, 1, 0, 0));
    bytes.put(1, &key(1), &value(3, 0, 0, 0));
    let mut pod = address.octets().to_vec();
    pod.extend(8080_u16.to_be_bytes());
    pod.extend([6, 0, 0, 0, 0, 0]);
    bytes.put(2, &3_u32.to_ne_bytes(), &pod);
    let maps = [
        map(1, "cilium_lb6_serv", 24, 12),
        map(2, "cilium_lb6_back", 4, 24),
    ];
    let tables = recognise(&bytes, Whose::Cilium, &maps).expect("known");
    let answer = tables.ask(&bytes, &to("TCP [fd00::1]:80", From::Socket));
    assert_eq!(answer.backends(), Some(&backends(&["[fd00::1]:8080"])));
}

#[test]
fn what_cant_be_read_is_said() {
    let mut bytes = incident();
    bytes.refuse(BACKENDS);
    let tables = recognise(&bytes, Whose::Cilium, &v3()).expect("known");
    match tables.ask(&bytes, &to("TCP 172.17.93.4:8080", From::Socket)) {
        Answer::Unknown { because } => assert_eq!(because, "map 28 can't be read: EPERM"),
        other => panic!("{other:?}"),
    }
}
