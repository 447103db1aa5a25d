//! Headers that are whole, cut off, or contradict each other.

use lb_abi::{SCTP, TCP, UDP};

use super::*;
use crate::net::{Transport, packet_state::PacketState, tests::node::Bytes};

extern crate std;
use std::{vec, vec::Vec};

/// An IPv6 packet whose first header behind the fixed one is `next`.
fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet.extend([
        0x86,
        0xdd,
        0x60,
        0,
        0,
        0,
        0,
        u8::try_from(rest.len()).expect("short"),
        next,
        64,
    ]);
    packet.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend(rest);
    packet
}

fn read(packet: &[u8]) -> Result<Headers, Unread> {
    let mut headers = PacketState::NEW.headers;
    outermost(Bytes(packet), &mut headers)?;
    internet(Bytes(packet), &mut headers, Part::Packet)?;
    transport(Bytes(packet), &mut headers, Part::Packet)?;
    Ok(headers)
}

const DATAGRAM: [u8; 8] = [0, 1, 0, 2, 0, 8, 9, 9];

/// An extension header of eight bytes in front of a UDP header.
fn behind(kind: u8, header: [u8; 7]) -> Vec<u8> {
    let mut rest = vec![UDP];
    rest.extend(header);
    rest.extend(DATAGRAM);
    v6(kind, &rest)
}

#[test]
fn ports_are_found_behind_extension_headers() {
    let headers = read(&behind(60, [0, 1, 4, 0, 0, 0, 0])).expect("destination options");
    assert_eq!((headers.tuple.protocol, headers.l4), (UDP, 14 + 40 + 8));
    assert_eq!(
        (
            headers.tuple.source_port.get(),
            headers.tuple.destination_port.get()
        ),
        (1, 2)
    );
    assert_eq!(
        read(&behind(51, [0; 7])).map(|headers| headers.l4),
        Ok(14 + 40 + 8),
        "authentication"
    );
}

#[test]
fn fragments_are_told_from_each_other_and_from_atomic_ones() {
    for (low, fragment) in [
        (0, Fragment::Whole),
        (1, Fragment::First),
        (8, Fragment::Later),
        (9, Fragment::Later),
    ] {
        let headers = read(&behind(44, [0, 0, low, 1, 2, 3, 4])).expect("a fragment");
        assert_eq!(headers.fragment, fragment, "{low}");
        if fragment != Fragment::Whole {
            assert_eq!(headers.fragment_id, [1, 2, 3, 4]);
        }
    }
}

#[test]
fn routes_that_senders_choose_are_seen() {
    assert_eq!(read(&behind(43, [0; 7])), Err(Unread::SourceRouted), "type 0");
    assert_eq!(
        read(&behind(43, [0, 4, 1, 0, 0, 0, 0])),
        Err(Unread::SourceRouted),
        "segments left"
    );
    assert!(read(&behind(43, [0, 4, 0, 0, 0, 0, 0])).is_ok(), "none left");
}

#[test]
fn jumbo_payloads_and_hop_by_hop_elsewhere_are_none_of_ours() {
    assert_eq!(read(&behind(0, [0, 0xc2, 4, 0, 1, 0, 0])), Err(Unread::Malformed));
    assert_eq!(
        read(&behind(0, [0, 0, 0xc2, 4, 0, 1, 0])),
        Err(Unread::Malformed),
        "behind padding"
    );
    let mut rest = vec![0, 0, 1, 4, 0, 0, 0, 0];
    rest.extend([UDP, 0, 1, 4, 0, 0, 0, 0]);
    rest.extend(DATAGRAM);
    let headers = read(&v6(60, &rest)).expect("read as far as it goes");
    assert_eq!(headers.transport, Transport::Other);
}

#[test]
fn as_many_extension_headers_are_read_as_documented() {
    let chain = |count: usize| {
        let mut rest = Vec::new();
        for index in 0..count {
            rest.extend([if index + 1 == count { UDP } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        rest.extend(DATAGRAM);
        v6(60, &rest)
    };
    assert!(read(&chain(6)).is_ok());
    assert_eq!(read(&chain(7)), Err(Unread::Malformed));
}

#[test]
fn mapped_addresses_are_foreign() {
    let mut packet = v6(UDP, &DATAGRAM);
    packet[14 + 8..14 + 24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
    assert_eq!(read(&packet), Err(Unread::Foreign));
}

/// An IPv4 packet with options, and what follows.
fn v4(options: &[u8], protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 12];
    let header = 20 + options.len();
    let words = u8::try_from(header / 4).expect("at most 15");
    let total = u8::try_from(header + rest.len()).expect("short");
    packet.extend([
        8,
        0,
        0x40 | words,
        0,
        0,
        total,
        0,
        7,
        0,
        0,
        64,
        protocol,
        0,
        0,
        192,
        0,
        2,
        1,
        192,
        0,
        2,
        2,
    ]);
    packet.extend(options);
    packet.extend(rest);
    packet
}

#[test]
fn options_are_whole_and_no_source_route() {
    for (options, expected) in [
        (&[1, 1, 1, 0][..], Ok(())),
        (&[7, 3, 4, 0], Ok(())),
        (&[131, 3, 4, 0], Err(Unread::SourceRouted)),
        (&[1, 137, 3, 4], Err(Unread::SourceRouted)),
        (&[7, 5, 4, 0], Err(Unread::Malformed)),
        (&[7, 1, 0, 0], Err(Unread::Malformed)),
        (&[1, 1, 1, 7], Err(Unread::Malformed)),
        (&[131, 1, 0, 0], Err(Unread::Malformed)),
        (&[0, 131, 3, 4], Ok(())),
    ] {
        assert_eq!(
            read(&v4(options, UDP, &DATAGRAM)).map(drop),
            expected,
            "{options:?}"
        );
    }
    assert_eq!(read(&v4(&[1; 40], UDP, &DATAGRAM)).map(drop), Ok(()));
}

#[test]
fn transport_headers_are_whole() {
    for (protocol, length, whole) in [
        (TCP, 20, true),
        (TCP, 19, false),
        (SCTP, 13, true),
        (SCTP, 12, false),
        (UDP, 7, false),
    ] {
        let mut rest = vec![0; length];
        if let Some(offset) = rest.get_mut(12) {
            *offset = 0x50;
        }
        assert_eq!(
            read(&v4(&[], protocol, &rest)).is_ok(),
            whole,
            "{protocol}, {length} bytes"
        );
    }
    let longer = [0, 1, 0, 2, 0, 9, 0, 0];
    assert_eq!(read(&v4(&[], UDP, &longer)), Err(Unread::Malformed));
    assert!(read(&v4(&[], UDP, &DATAGRAM)).is_ok());
}

#[test]
fn two_tags_are_looked_behind_and_a_third_is_foreign() {
    let plain = v4(&[], UDP, &DATAGRAM);
    for (tags, expected) in [(1, Ok(18)), (2, Ok(22)), (3, Err(Unread::Foreign))] {
        let mut packet = plain[..12].to_vec();
        (0..tags).for_each(|_| packet.extend([0x81, 0, 0, 5]));
        packet.extend(&plain[12..]);
        assert_eq!(read(&packet).map(|headers| headers.l3), expected, "{tags} tags");
    }
}
