//! ICMP and ICMPv6.

use std::net::IpAddr;

use etherparse::{Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type};
use lb_abi::{ICMP, ICMPV6};

use super::{Packet, transport::Body};

/// A message: type, code, the four bytes after the checksum, and what comes then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Icmp {
    v4: bool,
    kind: u8,
    code: u8,
    rest: [u8; 4],
    payload: Vec<u8>,
}

/// Types and codes of an error in both families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// ICMP's type and code.
    pub v4: (u8, u8),
    /// ICMPv6's.
    pub v6: (u8, u8),
    /// The four bytes after the checksum.
    pub rest: u32,
}

impl Error {
    /// Time exceeded in transit.
    pub const TIME_EXCEEDED: Self = Self {
        v4: (11, 0),
        v6: (3, 0),
        rest: 0,
    };
    /// Port unreachable.
    pub const PORT_UNREACHABLE: Self = Self {
        v4: (3, 3),
        v6: (1, 4),
        rest: 0,
    };
    /// Parameter problem at byte 0.
    pub const PARAMETER_PROBLEM: Self = Self {
        v4: (12, 0),
        v6: (4, 0),
        rest: 0,
    };

    /// Fragmentation needed or packet too big: with the MTU of the next hop.
    pub const fn too_big(mtu: u32) -> Self {
        Self {
            v4: (3, 4),
            v6: (2, 0),
            rest: mtu,
        }
    }
}

/// A message of this type and code.
pub fn icmp(
    source: IpAddr,
    destination: IpAddr,
    (kind, code): (u8, u8),
    rest: [u8; 4],
    payload: &[u8],
) -> Packet {
    let icmp = Icmp {
        v4: source.is_ipv4(),
        kind,
        code,
        rest,
        payload: payload.to_vec(),
    };
    Packet::new(source, destination, Body::Icmp(icmp))
}

/// An echo request.
pub fn echo(source: IpAddr, destination: IpAddr) -> Packet {
    let kind = if source.is_ipv4() { (8, 0) } else { (128, 0) };
    icmp(source, destination, kind, [0x12, 0x34, 0, 1], b"abcdefgh")
}

/// An error about a packet, of which so many bytes are quoted from its transport header on; all of them if there are
/// not as many.
pub fn quoting(
    source: IpAddr,
    destination: IpAddr,
    error: Error,
    quoted: &Packet,
    transport: usize,
) -> Packet {
    let kind = if source.is_ipv4() { error.v4 } else { error.v6 };
    let mut quote = quoted.network();
    quote.truncate(quoted.header_length() + transport);
    icmp(source, destination, kind, error.rest.to_be_bytes(), &quote)
}

impl Packet {
    /// Bytes of its IP header, with options and extension headers.
    pub fn header_length(&self) -> usize {
        self.ip.encapsulate(&self.body).0.len()
    }
}

impl Icmp {
    pub(super) const fn protocol(&self) -> u8 {
        if self.v4 { ICMP } else { ICMPV6 }
    }

    pub(super) fn bytes(&self, source: IpAddr, destination: IpAddr) -> Vec<u8> {
        let Self { kind, code, rest, .. } = *self;
        let header = match (source, destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let unknown = Icmpv6Type::Unknown {
                    type_u8: kind,
                    code_u8: code,
                    bytes5to8: rest,
                };
                let header = Icmpv6Header::with_checksum(
                    unknown,
                    source.octets(),
                    destination.octets(),
                    &self.payload,
                );
                header.expect("at most 64 KiB").to_bytes().to_vec()
            }
            _ => {
                let unknown = Icmpv4Type::Unknown {
                    type_u8: kind,
                    code_u8: code,
                    bytes5to8: rest,
                };
                Icmpv4Header::with_checksum(unknown, &self.payload)
                    .to_bytes()
                    .to_vec()
            }
        };
        [header.as_slice(), &self.payload].concat()
    }
}
