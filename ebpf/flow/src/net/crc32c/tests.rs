//! Against CRC32c bit by bit.

use super::*;

extern crate std;
use std::{vec, vec::Vec};

/// Bit by bit, as RFC 9260 has it.
fn crc32c(message: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in message {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

/// An SCTP packet with its checksum.
fn packet(ports: [u8; 4], length: usize) -> Vec<u8> {
    let mut packet = vec![0; length];
    for (index, byte) in packet.iter_mut().enumerate() {
        *byte = u8::try_from(index * 7 % 251).expect("below 251");
    }
    packet[..4].copy_from_slice(&ports);
    packet[8..12].fill(0);
    let checksum = crc32c(&packet).to_le_bytes();
    packet[8..12].copy_from_slice(&checksum);
    packet
}

#[test]
fn the_reference_is_crc32c() {
    assert_eq!(
        crc32c(b"123456789"),
        0xe306_9283,
        "the check value of CRC-32/ISCSI"
    );
}

#[test]
fn changed_ports_give_the_checksum_of_the_changed_packet() {
    // Miri takes a thousand times as long.
    let longest = if cfg!(miri) { 20 } else { 65_515 };
    let lengths = (12..80).chain([255, 256, 257, 1480, 4095, 4096, 65_515]);
    for length in lengths.filter(|length| *length <= longest) {
        for (old, new) in [
            ([0, 80, 0, 81], [0, 80, 0, 81]),
            ([0xc0, 1, 0, 80], [0xc0, 1, 0x1f, 0x90]),
            ([0xff; 4], [0; 4]),
            ([1, 2, 3, 4], [4, 3, 2, 1]),
        ] {
            let (before, after) = (packet(old, length), packet(new, length));
            let field = |packet: &[u8]| <[u8; 4]>::try_from(&packet[8..12]).expect("four bytes");
            let bytes = u32::try_from(length).expect("a packet's length");
            assert_eq!(
                ports_changed(field(&before), old, new, bytes),
                field(&after),
                "{old:?} to {new:?} in {length} bytes"
            );
        }
    }
}

#[test]
fn a_wrong_checksum_stays_wrong_by_the_same_bits() {
    let (old, new) = ([0, 1, 0, 2], [0, 1, 0, 3]);
    let right = ports_changed([1, 2, 3, 4], old, new, 100);
    let wrong = ports_changed([1 ^ 0x80, 2, 3, 4 ^ 1], old, new, 100);
    assert_eq!([right[0] ^ 0x80, right[1], right[2], right[3] ^ 1], wrong);
}

#[test]
fn multiplication_by_one_changes_nothing() {
    for number in [0, 1, POLYNOMIAL, u32::MAX] {
        assert_eq!(multiply(1 << 31, number), number);
        assert_eq!(multiply(number, 1 << 31), number);
    }
}
