//! What is built is right; and every bit of it that a checksum or a length covers is missed.

use std::net::IpAddr;

use super::{Wrong, check};
use crate::{
    build::{C_TAG, Error, Extension, Packet, S_TAG, echo, options, quoting, sctp, tcp, udp},
    test_node::{Addresses, V4, V6},
};

fn packets(at: &Addresses) -> Vec<Packet> {
    let (client, server) = ((at.client, 40_000), (at.pod_a, 8080));
    let quoted = udp(client, server).data(33);
    let too_big = Error::too_big(1300);
    vec![
        tcp(client, server).syn().tcp_options(&[2, 4, 5, 0xb4]),
        tcp(client, server).ack().push().data(7).tag(C_TAG, 5),
        udp(client, server).data(0).tag(S_TAG, 5).tag(C_TAG, 6),
        udp(client, server).zero_sum(),
        sctp(client, server, 1),
        echo(at.client, at.pod_a),
        quoting(at.gateway, at.client, too_big, &quoted, 8),
        quoting(at.gateway, at.client, too_big, &quoted, 100),
        quoting(
            at.pod_a,
            at.client,
            Error::PORT_UNREACHABLE,
            &tcp(client, server).ack(),
            100,
        ),
        udp(client, server).padded(9),
    ]
}

fn all() -> Vec<Packet> {
    let (client, server) = (
        |at: &Addresses| (at.client, 40_000),
        |at: &Addresses| (at.pod_a, 8080),
    );
    let mut all = [packets(&V4), packets(&V6)].concat();
    all.push(udp(client(&V4), server(&V4)).option(&options::RECORD_ROUTE));
    let extended = tcp(client(&V6), server(&V6)).syn();
    for extension in [
        Extension::HopByHop(1),
        Extension::Destination(2),
        Extension::Routing(2, 0),
        Extension::Authentication,
    ] {
        all.push(extended.clone().extension(extension));
    }
    all.push(extended.atomic());
    all
}

#[test]
fn what_is_built_is_whole() {
    for packet in all() {
        let bytes = packet.bytes();
        assert_eq!(check(&bytes), Ok(()), "{packet:?}\n{bytes:02x?}");
    }
}

#[test]
fn no_change_of_what_a_checksum_covers_is_missed() {
    for at in [&V4, &V6] {
        let padded = udp((at.client, 40_000), (at.pod_a, 8080)).padded(9);
        let sctp = sctp((at.client, 40_000), (at.pod_a, 8080), 1);
        for packet in packets(at) {
            let mut bytes = packet.bytes();
            let padding = if packet == padded { 9 } else { 0 };
            // IPv6 has no checksum of its own, and SCTP's covers no addresses.
            let covered = match at.node {
                IpAddr::V4(_) => 0,
                IpAddr::V6(_) if packet == sctp => 40,
                IpAddr::V6(_) => 8,
            };
            for index in packet.network_offset() + covered..bytes.len() - padding {
                bytes[index] ^= 0x10;
                assert!(check(&bytes).is_err(), "byte {index} of {packet:?}");
                bytes[index] ^= 0x10;
            }
        }
    }
}

#[test]
fn no_end_that_is_cut_off_is_missed() {
    for packet in all() {
        let bytes = packet.bytes();
        let end = packet.network_offset() + packet.traffic() as usize;
        for length in 0..end {
            assert!(check(&bytes[..length]).is_err(), "{length} bytes of {packet:?}");
        }
    }
}

#[test]
fn a_quote_is_checked_as_what_it_is_a_quote_of() {
    let stranger = quoting(
        V4.gateway,
        V4.stranger,
        Error::TIME_EXCEEDED,
        &udp((V4.client, 1), (V4.pod_a, 2)),
        8,
    );
    let misdirected = Wrong::Misdirected {
        to: V4.stranger,
        from: V4.client,
    };
    assert_eq!(check(&stranger.bytes()), Err(misdirected));
    let unspecified: IpAddr = "0.0.0.0".parse().expect("an address");
    let broken = udp((V4.client, 1), (V4.pod_a, 2)).network_bytes(16, &[9]);
    let broken = quoting(unspecified, V4.client, Error::TIME_EXCEEDED, &broken, 8);
    assert!(matches!(check(&broken.bytes()), Err(Wrong::Quote(_))));
}

#[test]
fn ports_are_read_behind_extension_headers() {
    let ends = super::ends(&all().last().expect("some").bytes()).expect("whole");
    assert_eq!(ends.source, (V6.client, Some(40_000)));
    assert_eq!(ends.destination, (V6.pod_a, Some(8080)));
}

#[test]
fn what_is_mended_is_whole_but_for_udp_lengths() {
    for packet in all() {
        let bytes = packet.bytes();
        assert_eq!(super::mend(&bytes).as_ref().map(Vec::len), Some(bytes.len()));
        for length in packet.network_offset() + packet.header_length() + 40..bytes.len() {
            let mended = super::mend(&bytes[..length]).expect("more than a header");
            match check(&mended) {
                // A quote may end in its header: then there is nothing to check.
                Ok(())
                | Err(
                    Wrong::Field {
                        what: "UDP length", ..
                    }
                    | Wrong::Quote(_),
                ) => {}
                Err(wrong) => panic!("{wrong} in {length} bytes of {packet:?}"),
            }
        }
    }
}
