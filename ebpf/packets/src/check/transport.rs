//! TCP, UDP, SCTP and ICMP.

use std::net::IpAddr;

use crc::{CRC_32_ISCSI, Crc};
use lb_abi::{ICMP, ICMPV6, SCTP, TCP, UDP};
use pnet_packet::{ip::IpNextHeaderProtocol, util};

use super::{
    Wrong, at_least, checksum,
    network::{self, Depth, Network},
};

const CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Checks what an IP packet carries.
pub(super) fn check(packet: &Network<'_>) -> Result<(), Wrong> {
    if !packet.first {
        return Ok(());
    }
    match packet.protocol {
        TCP => tcp(packet),
        UDP => udp(packet),
        SCTP => sctp(packet),
        ICMP | ICMPV6 if packet.depth == Depth::Packet => icmp(packet),
        _ => Ok(()),
    }
}

/// Whether all bytes are there that a checksum covers.
const fn covered(packet: &Network<'_>) -> bool {
    packet.whole && !packet.fragment
}

fn tcp(packet: &Network<'_>) -> Result<(), Wrong> {
    if !packet.whole {
        return Ok(());
    }
    let header = at_least("TCP header", packet.payload, 20)?;
    let offset = usize::from(header[12] >> 4) * 4;
    if offset < 20 {
        return Err(Wrong::Field {
            what: "TCP data offset",
            found: offset as u64,
            expected: 20,
        });
    }
    at_least("TCP options", packet.payload, offset)?;
    if !covered(packet) {
        return Ok(());
    }
    checksum("TCP checksum", word(header, 16), internet(packet, 16))
}

fn udp(packet: &Network<'_>) -> Result<(), Wrong> {
    if !packet.whole {
        return Ok(());
    }
    let header = at_least("UDP header", packet.payload, 8)?;
    if !covered(packet) {
        return Ok(());
    }
    let length = usize::from(word(header, 4));
    if length != packet.payload.len() {
        return Err(Wrong::Field {
            what: "UDP length",
            found: length as u64,
            expected: packet.payload.len() as u64,
        });
    }
    match (word(header, 6), internet(packet, 6)) {
        // Without one (RFC 768; in IPv6 that of tunnels, RFC 6935).
        (0, _) => Ok(()),
        (found, 0) => checksum("UDP checksum", found, u16::MAX),
        (found, expected) => checksum("UDP checksum", found, expected),
    }
}

fn sctp(packet: &Network<'_>) -> Result<(), Wrong> {
    // What is quoted keeps its checksum: it covers no addresses, and no receiver checks it.
    if !covered(packet) || packet.depth == Depth::Quote {
        return Ok(());
    }
    let header = at_least("SCTP header", packet.payload, 12)?;
    let found = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if found == 0 {
        // Left to the device.
        return Ok(());
    }
    checksum("SCTP CRC32c", found, crc32c(packet.payload))
}

/// CRC32c of a packet, of which the field itself counts as zero.
pub(super) fn crc32c(packet: &[u8]) -> u32 {
    let mut zeroed = packet.to_vec();
    if let Some(field) = zeroed.get_mut(8..12) {
        field.fill(0);
    }
    CRC32C.checksum(&zeroed)
}

fn icmp(packet: &Network<'_>) -> Result<(), Wrong> {
    if packet.fragment {
        return Ok(());
    }
    let header = at_least("ICMP header", packet.payload, 8)?;
    let expected = match packet.source {
        IpAddr::V4(_) => util::checksum(packet.payload, 1),
        IpAddr::V6(_) => internet(packet, 2),
    };
    checksum("ICMP checksum", word(header, 2), expected)?;
    let error = match packet.protocol {
        ICMP => [3, 11, 12].contains(&header[0]),
        _ => (1..=4).contains(&header[0]),
    };
    if !error {
        return Ok(());
    }
    let wrong = |wrong| Wrong::Quote(Box::new(wrong));
    let quote = network::read(&packet.payload[8..], Depth::Quote).map_err(wrong)?;
    if quote.source != packet.destination {
        return Err(Wrong::Misdirected {
            to: packet.destination,
            from: quote.source,
        });
    }
    check(&quote).map_err(wrong)
}

/// The checksum over pseudo-header and payload, of which the field itself, at this offset, counts as zero.
pub(super) fn internet(packet: &Network<'_>, field: usize) -> u16 {
    let protocol = IpNextHeaderProtocol(packet.protocol);
    let (data, skip) = (packet.payload, field / 2);
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            util::ipv4_checksum(data, skip, &[], &source, &destination, protocol)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            util::ipv6_checksum(data, skip, &[], &source, &destination, protocol)
        }
        _ => unreachable!("both are read from one header"),
    }
}

fn word(header: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([header[offset], header[offset + 1]])
}
