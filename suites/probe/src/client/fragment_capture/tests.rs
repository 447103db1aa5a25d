//! Fragments in the packets of a device.

use std::net::SocketAddr;

use super::*;
use crate::client::fragments::{datagram, parts};

const PORT: u16 = 40_000;

/// What is seen of a datagram with three fragments.
fn seen(source: &str, destination: &str, is_sent: bool, identification: u32) -> Vec<Piece> {
    let [source, destination]: [SocketAddr; 2] = [source, destination].map(|one| one.parse().unwrap());
    let packets = parts(
        &datagram(source, destination, &[7; 3000]),
        [source.ip(), destination.ip()],
        identification,
        3,
    );
    packets
        .iter()
        .filter_map(|packet| piece(packet, is_sent))
        .collect()
}

fn addresses(of: &[&str]) -> std::collections::BTreeSet<IpAddr> {
    of.iter().map(|one| one.parse().unwrap()).collect()
}

#[test]
fn fragments_of_both_families_belong_to_the_first_with_ports() {
    for [client, frontend, others] in [
        ["10.0.0.1:40000", "10.96.0.1:80", "10.0.0.1:40001"],
        ["[2001:db8::1]:40000", "[2001:db8::9]:80", "[2001:db8::1]:40001"],
    ] {
        let mut pieces = seen(client, frontend, true, 1);
        pieces.reverse();
        pieces.extend(seen(frontend, client, false, 2));
        pieces.extend(seen(others, frontend, true, 3));
        pieces.extend(seen(frontend, others, false, 4));
        let found = of(&pieces, PORT);
        assert_eq!(found.sent, [2016, 1008, 0], "in their order");
        let frontend = frontend.parse::<SocketAddr>().unwrap().ip().to_string();
        assert_eq!(found.to, addresses(&[&frontend]));
        assert_eq!((found.received, found.from), (3, addresses(&[&frontend])));
        assert_eq!(of(&pieces, 1), Fragments::default());
    }
}

#[test]
fn a_later_fragment_with_another_source_is_of_the_datagram_whose_identification_it_has() {
    let mut pieces = seen("10.96.0.1:80", "10.0.0.1:40000", false, 2);
    let backend = seen("10.1.0.1:8080", "10.0.0.1:40000", false, 2);
    pieces.truncate(1);
    pieces.extend_from_slice(&backend[1..]);
    let found = of(&pieces, PORT);
    assert_eq!(
        (found.received, found.from),
        (3, addresses(&["10.1.0.1", "10.96.0.1"]))
    );
}

#[test]
fn a_datagram_of_another_sender_may_have_the_same_identification() {
    let mut pieces = seen("10.96.0.1:80", "10.0.0.1:40000", false, 2);
    pieces.extend(seen("10.96.0.2:80", "10.0.0.1:40001", false, 2));
    assert_eq!(of(&pieces, PORT).from, addresses(&["10.96.0.1"]));
}

#[test]
fn what_is_no_fragment_of_udp_is_passed_over() {
    let packets = |protocol_at: usize, families: [&str; 2]| {
        let [source, destination]: [SocketAddr; 2] = families.map(|one| one.parse().unwrap());
        let bytes = datagram(source, destination, &[7; 3000]);
        let ends = [source.ip(), destination.ip()];
        let mut other = parts(&bytes, ends, 1, 2)[0].clone();
        other[protocol_at] = 6;
        [other, parts(&bytes, ends, 1, 1)[0].clone()]
    };
    let v4 = packets(9, ["10.0.0.1:1", "10.0.0.2:2"]);
    let v6 = packets(40, ["[2001:db8::1]:1", "[2001:db8::2]:2"]);
    for packet in v4.iter().chain(&v6) {
        assert_eq!(piece(packet, true), None);
        assert_eq!(piece(&packet[..10], true), None, "cut off");
    }
}
