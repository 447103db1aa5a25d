//! Against sums byte by byte.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lb_abi::{Port, TCP};

use super::*;

/// As RFC 1071 has it, byte by byte, in network order.
fn reference(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded")
}

#[test]
fn a_difference_gives_the_checksum_of_what_has_changed() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state & 0xffff_ffff).expect("masked")
    };
    for round in 0..if cfg!(miri) { 50 } else { 2_000 } {
        let mut bytes = [0; 40];
        for word in bytes.chunks_mut(4) {
            word.copy_from_slice(&random().to_ne_bytes());
        }
        let before = reference(&bytes).to_be_bytes();
        let word =
            |bytes: &[u8; 40], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        let old = (word(&bytes, 8), [bytes[18], bytes[19]]);
        bytes[8..12].copy_from_slice(&random().to_ne_bytes());
        bytes[18..20].copy_from_slice(&random().to_ne_bytes()[..2]);
        let difference = Difference::NONE
            .word(old.0, word(&bytes, 8))
            .half(old.1, [bytes[18], bytes[19]]);
        assert_eq!(
            difference.apply(before),
            reference(&bytes).to_be_bytes(),
            "round {round}"
        );
        let folded = u64::from(difference.folded());
        assert_eq!(
            folded % 0xffff,
            difference.0 % 0xffff,
            "folding keeps the sum modulo 2¹⁶ - 1"
        );
    }
}

#[test]
fn nothing_changed_changes_nothing() {
    for checksum in [[0, 0], [0x12, 0x34], [0xff, 0xfe]] {
        assert_eq!(Difference::NONE.apply(checksum), checksum);
        assert_eq!(Difference::NONE.word(7, 7).apply(checksum), checksum);
    }
}

#[test]
fn a_full_checksum_is_that_of_the_bytes() {
    let words = [0x0102_0304_u32, 0xfffe_fdfc, 0, 0x8000_0001];
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    assert_eq!(full(&words, Sum::NONE), reference(&bytes).to_be_bytes());
}

#[test]
fn a_pseudo_header_is_summed_as_it_is_laid_out() {
    let v4 = |octets: [u8; 4]| Address::from(IpAddr::V4(Ipv4Addr::from(octets)));
    let sum = Sum::pseudo_header(v4([192, 0, 2, 1]), v4([198, 51, 100, 7]), TCP, 0x1234);
    let laid_out = [192, 0, 2, 1, 198, 51, 100, 7, 0, TCP, 0x12, 0x34];
    assert_eq!(full(&[], sum), reference(&laid_out).to_be_bytes());
    assert_eq!(sum.partial(), (!reference(&laid_out)).to_be_bytes());

    let v6 = Address::from(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let sum = Sum::pseudo_header(v6, v6, TCP, 20);
    let mut laid_out = [0; 40];
    (laid_out[15], laid_out[31], laid_out[35], laid_out[39]) = (1, 1, 20, TCP);
    assert_eq!(full(&[], sum), reference(&laid_out).to_be_bytes());
}

#[test]
fn addresses_and_ports_are_all_of_a_tuple() {
    let tuple = |octet: u8, port: u16| Tuple {
        source: Address::v4([10, 0, 0, octet]),
        destination: Address::v6([octet; 16]),
        source_port: Port::new(port),
        destination_port: Port::new(port ^ 0xff),
        protocol: TCP,
        pad: [0; 3],
    };
    let (old, new) = (tuple(1, 80), tuple(9, 8080));
    let words = |tuple: &Tuple| {
        let ([a, b, c, d], [e, f, g, h]) = (tuple.source.words(), tuple.destination.words());
        let ([i, j], [k, l]) = (tuple.source_port.0, tuple.destination_port.0);
        [a, b, c, d, e, f, g, h, u32::from_ne_bytes([i, j, k, l])]
    };
    let difference = Difference::NONE.addresses(&old, &new).ports(&old, &new);
    let before = full(&words(&old), Sum::NONE);
    assert_eq!(difference.apply(before), full(&words(&new), Sum::NONE));
}
