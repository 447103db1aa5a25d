//! IPv4 and IPv6.

use std::net::{IpAddr, Ipv6Addr};

use pnet_packet::{
    ipv4::{self, Ipv4Packet},
    ipv6::Ipv6Packet,
};

use super::{Wrong, at_least, checksum, transport};

/// The two ends of a packet; ports where it has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// From where.
    pub source: (IpAddr, Option<u16>),
    /// To where.
    pub destination: (IpAddr, Option<u16>),
}

/// Whether it is a packet, or what an ICMP error quotes of one, which may end anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    Packet,
    Quote,
}

/// What the transport's checks need to know of a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// Is it part of a datagram only? Then checksums are those of bytes that are elsewhere.
    pub(super) fragment: bool,
    /// Does it have what a first fragment begins with?
    pub(super) first: bool,
    /// Is all of the payload there?
    pub(super) whole: bool,
    pub(super) payload: &'a [u8],
    pub(super) depth: Depth,
}

/// Checks from the IP header on.
pub(super) fn check(bytes: &[u8], depth: Depth) -> Result<(), Wrong> {
    transport::check(&read(bytes, depth)?)
}

/// Addresses and ports of a frame.
///
/// # Errors
/// [`Wrong`] if they can't be read.
pub fn ends(frame: &[u8]) -> Result<Ends, Wrong> {
    let network = read(super::ip(frame)?, Depth::Packet)?;
    let ports = match network.payload {
        [a, b, c, d, ..] if network.first && [6, 17, 132].contains(&network.protocol) => {
            [[*a, *b], [*c, *d]].map(|port| Some(u16::from_be_bytes(port)))
        }
        _ => [None; 2],
    };
    Ok(Ends {
        source: (network.source, ports[0]),
        destination: (network.destination, ports[1]),
    })
}

/// Reads and checks an IP header.
pub(super) fn read(bytes: &[u8], depth: Depth) -> Result<Network<'_>, Wrong> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => v4(bytes, depth),
        Some(6) => v6(bytes, depth),
        other => Err(Wrong::Field {
            what: "IP version",
            found: other.unwrap_or_default().into(),
            expected: 4,
        }),
    }
}

fn v4(bytes: &[u8], depth: Depth) -> Result<Network<'_>, Wrong> {
    let packet = Ipv4Packet::new(bytes).ok_or(Wrong::Short {
        what: "IPv4 header",
        found: bytes.len(),
        least: 20,
    })?;
    let header = usize::from(packet.get_header_length()) * 4;
    if header < 20 {
        return Err(Wrong::Field {
            what: "IPv4 header length",
            found: header as u64,
            expected: 20,
        });
    }
    at_least("IPv4 header with options", bytes, header)?;
    checksum(
        "IPv4 header checksum",
        packet.get_checksum(),
        ipv4::checksum(&packet),
    )?;
    let length = usize::from(packet.get_total_length());
    let (payload, whole) = payload("IPv4 total length", bytes, header, length, depth)?;
    let (offset, more) = (packet.get_fragment_offset(), packet.get_flags() & 1 != 0);
    Ok(Network {
        source: packet.get_source().into(),
        destination: packet.get_destination().into(),
        protocol: packet.get_next_level_protocol().0,
        fragment: offset != 0 || more,
        first: offset == 0,
        whole,
        payload,
        depth,
    })
}

fn v6(bytes: &[u8], depth: Depth) -> Result<Network<'_>, Wrong> {
    let packet = Ipv6Packet::new(bytes).ok_or(Wrong::Short {
        what: "IPv6 header",
        found: bytes.len(),
        least: 40,
    })?;
    let length = 40 + usize::from(packet.get_payload_length());
    let (mut rest, whole) = payload("IPv6 payload length", bytes, 40, length, depth)?;
    let mut destination = packet.get_destination();
    let mut next = packet.get_next_header().0;
    let (mut fragment, mut first) = (false, true);
    // Hop-by-hop, routing, fragment, authentication, destination options (RFC 8200, 4.1). Each is at least eight bytes.
    while [0, 43, 44, 51, 60].contains(&next) && first {
        let header = match extension(next, rest) {
            // Quotes end where they end.
            Err(_) if depth == Depth::Quote && !whole => {
                first = false;
                break;
            }
            header => header?,
        };
        if next == 44 {
            let offset = u16::from_be_bytes([header[2], header[3]]);
            fragment |= offset & 0xfff9 != 0;
            first = offset >> 3 == 0;
        }
        if next == 43 && header[3] != 0 && header.len() >= 24 {
            // The pseudo-header has the final destination (RFC 8200, 8.1).
            let last = header[header.len() - 16..].first_chunk();
            destination = Ipv6Addr::from_octets(last.copied().unwrap_or_default());
        }
        next = header[0];
        rest = &rest[header.len()..];
    }
    Ok(Network {
        source: packet.get_source().into(),
        destination: destination.into(),
        protocol: next,
        fragment,
        first,
        whole,
        payload: rest,
        depth,
    })
}

/// An extension header.
fn extension(number: u8, bytes: &[u8]) -> Result<&[u8], Wrong> {
    let what = "IPv6 extension header";
    let words = usize::from(at_least(what, bytes, 8)?[1]);
    let length = match number {
        44 => 8,
        51 => (words + 2) * 4,
        _ => (words + 1) * 8,
    };
    at_least(what, bytes, length)
}

/// What comes behind the header, and whether that is all.
fn payload<'a>(
    what: &'static str,
    bytes: &'a [u8],
    header: usize,
    length: usize,
    depth: Depth,
) -> Result<(&'a [u8], bool), Wrong> {
    if length < header {
        return Err(Wrong::Short {
            what,
            found: length,
            least: header,
        });
    }
    match (bytes.get(header..length), depth) {
        (Some(payload), _) => Ok((payload, true)),
        (None, Depth::Quote) => Ok((&bytes[header..], false)),
        (None, Depth::Packet) => Err(Wrong::Short {
            what,
            found: bytes.len(),
            least: length,
        }),
    }
}
