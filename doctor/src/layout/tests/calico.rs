//! Calico's bytes.

use super::*;

/// `struct calico_nat_v4_key`: bits that count, address, port, protocol, client, padding.
fn key(address: [u8; 4], port: u16, protocol: u8) -> Vec<u8> {
    let mut key = 88_u32.to_ne_bytes().to_vec();
    key.extend(address);
    key.extend(port.to_ne_bytes());
    key.push(protocol);
    key.extend([0; 5]);
    key
}

fn value(id: u32, count: u32, local: u32, flags: u32) -> Vec<u8> {
    [id, count, local, 0, flags].map(u32::to_ne_bytes).concat()
}

fn backend(address: [u8; 4], port: u16) -> Vec<u8> {
    let mut value = address.to_vec();
    value.extend(port.to_ne_bytes());
    value.extend([0; 2]);
    value
}

fn maps() -> [Map; 2] {
    [map(1, "cali_v4_nat_fe3", 16, 20), map(2, "cali_v4_nat_be", 8, 8)]
}

#[test]
fn backends_local_ones_ranges_and_node_ports_are_told_apart() {
    const INTERNAL_LOCAL: u32 = 2;
    let mut bytes = MemoryBytes::default();
    bytes.put(1, &key([10, 96, 0, 1], 80, 6), &value(3, 2, 1, 0));
    bytes.put(1, &key([10, 96, 0, 2], 80, 6), &value(3, 2, 1, INTERNAL_LOCAL));
    bytes.put(1, &key([10, 96, 0, 3], 80, 6), &value(3, u32::MAX, 0, 0));
    bytes.put(1, &key([10, 96, 0, 4], 80, 6), &value(4, 0, 0, 0));
    bytes.put(1, &key([10, 96, 0, 5], 80, 6), &value(3, 3, 0, 0));
    bytes.put(1, &key([255; 4], 30_080, 6), &value(3, 2, 1, 0));
    bytes.put(
        2,
        &[3_u32, 0].map(u32::to_ne_bytes).concat(),
        &backend([10, 0, 0, 1], 8080),
    );
    bytes.put(
        2,
        &[3_u32, 1].map(u32::to_ne_bytes).concat(),
        &backend([10, 0, 0, 2], 8080),
    );
    let tables = recognise(&bytes, Whose::Calico, &maps()).expect("known");
    let both = backends(&["10.0.0.1:8080", "10.0.0.2:8080"]);
    let ask = |text: &str, from| tables.ask(&bytes, &to(text, from));
    assert_eq!(ask("TCP 10.96.0.1:80", From::Socket).backends(), Some(&both));
    assert_eq!(ask("UDP 10.96.0.1:80", From::Socket), Answer::NotAService);
    assert_eq!(
        ask("TCP 10.96.0.2:80", From::Socket).backends(),
        Some(&backends(&["10.0.0.1:8080"])),
        "internalTrafficPolicy Local: local ones come first"
    );
    assert_eq!(ask("TCP 10.96.0.2:80", From::Outside).backends(), Some(&both));
    let outside = ask("TCP 10.96.0.3:80", From::Outside);
    assert!(matches!(outside, Answer::Dropped { .. }), "{outside}");
    let none = ask("TCP 10.96.0.4:80", From::Socket);
    assert!(matches!(none, Answer::Refused { .. }), "{none}");
    match ask("TCP 10.96.0.5:80", From::Socket) {
        Answer::Backends { holes: 1, .. } => {}
        other => panic!("one of three is missing: {other:?}"),
    }
    match ask("TCP 192.0.2.1:30080", From::Socket) {
        Answer::Backends {
            only_if: Some(_),
            backends,
            ..
        } => assert_eq!(backends, both),
        other => panic!("a node port: {other:?}"),
    }
    assert_eq!(tables.frontends(&bytes).expect("readable").found.len(), 6);
}

#[test]
fn the_first_version_has_no_prefix() {
    let mut bytes = MemoryBytes::default();
    let mut key = vec![10, 96, 0, 1];
    key.extend(80_u16.to_ne_bytes());
    key.extend([6, 0]);
    bytes.put(1, &key, &value(3, 1, 0, 0)[..16]);
    bytes.put(
        2,
        &[3_u32, 0].map(u32::to_ne_bytes).concat(),
        &backend([10, 0, 0, 1], 8080),
    );
    let maps = [map(1, "cali_v4_nat_fe", 8, 16), map(2, "cali_v4_nat_be", 8, 8)];
    let tables = recognise(&bytes, Whose::Calico, &maps).expect("known");
    let answer = tables.ask(&bytes, &to("TCP 10.96.0.1:80", From::Socket));
    assert_eq!(answer.backends(), Some(&backends(&["10.0.0.1:8080"])));
    assert_eq!(
        recognise(&bytes, Whose::Unknown, &maps),
        None,
        "names alone are nobody's"
    );
}
