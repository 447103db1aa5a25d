//! Packets given byte by byte, as fuzzing finds them.

use std::net::{IpAddr, Ipv4Addr};

use super::{C_TAG, Packet, S_TAG, other};

/// A frame from its bytes in hexadecimal, with blanks anywhere. What a builder would change of it stays as it is.
///
/// # Panics
/// If it is not hexadecimal, or less than an Ethernet header.
pub fn frame(hex: &str) -> Packet {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|character| character.to_digit(16).expect("hexadecimal digits") as u8)
        .collect();
    let (bytes, []) = digits.as_chunks::<2>() else {
        panic!("two digits for each byte")
    };
    let bytes: Vec<u8> = bytes.iter().map(|[high, low]| high << 4 | low).collect();
    assert!(bytes.len() >= 14, "an Ethernet header");
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Packet {
        frame: Some(bytes),
        ..other(nobody, nobody, 0, &[])
    }
}

/// How many tags a frame has.
pub(super) fn tags(frame: &[u8]) -> usize {
    frame[12..]
        .chunks(4)
        .take_while(|tag| tag.len() == 4 && [C_TAG, S_TAG].contains(&u16::from_be_bytes([tag[0], tag[1]])))
        .count()
}

/// The length of an IP packet by its header; without one, as it is.
pub(super) fn traffic(packet: &[u8]) -> u64 {
    let word = |offset: usize| {
        let bytes = packet.get(offset..)?.first_chunk()?;
        Some(u64::from(u16::from_be_bytes(*bytes))).filter(|length| *length != 0)
    };
    let length = match packet.first().map(|first| first >> 4) {
        Some(4) => word(2),
        Some(6) => word(4).map(|payload| payload + 40),
        _ => None,
    };
    length.unwrap_or(packet.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{tcp, udp},
        test_node::{V4, V6},
    };

    #[test]
    fn a_frame_is_what_its_bytes_say() {
        for at in [&V4, &V6] {
            for packet in [
                tcp((at.client, 1), (at.pod_a, 2)).syn().padded(6),
                udp((at.client, 1), (at.pod_a, 2)).tag(S_TAG, 1).tag(C_TAG, 2),
            ] {
                let hex: Vec<String> = packet.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                let frame = frame(&hex.join(" "));
                assert_eq!(frame.bytes(), packet.bytes());
                assert_eq!(frame.network_offset(), packet.network_offset());
                assert_eq!(frame.traffic(), packet.traffic());
            }
        }
    }
}
