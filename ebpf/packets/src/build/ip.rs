//! IPv4 with options, IPv6 with extension headers, and fragments of both.

use std::{net::IpAddr, ops::Range};

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, Ipv6Header};

use super::{
    Packet,
    transport::{Body, ones_complement_sum},
};

/// Header fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ip {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    hops: u8,
    class: u8,
    id: u32,
    dont_fragment: bool,
    options: Vec<u8>,
    extensions: Vec<Extension>,
    piece: Option<Piece>,
    most: usize,
}

/// Which part of a datagram's payload this packet carries.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    range: Range<usize>,
    more: bool,
}

/// An IPv6 extension header (RFC 8200, 4; RFC 4302), without its next header and its length, which follow from where
/// it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extension {
    /// With so many times eight bytes, of padding options.
    HopByHop(u8),
    /// The same, for the destination.
    Destination(u8),
    /// A hop-by-hop header with a jumbo payload option (RFC 2675).
    Jumbo(u32),
    /// Type, and segments left; with one address, of 2001:db8::7.
    Routing(u8, u8),
    /// Authentication, with 12 bytes of check value.
    Authentication,
    /// A header of an unknown kind.
    Unknown(u8),
}

/// The address in a routing header.
const VISITED: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// IPv4 options, as bytes.
pub mod options {
    /// No operation.
    pub const NOTHING: [u8; 1] = [1];
    /// Router alert (RFC 2113).
    pub const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
    /// Record route, with room for one address.
    pub const RECORD_ROUTE: [u8; 7] = [7, 7, 4, 0, 0, 0, 0];
    /// Loose source route, by one more address.
    pub const LOOSE_ROUTE: [u8; 7] = [0x83, 7, 4, 192, 0, 2, 77];
    /// Strict source route.
    pub const STRICT_ROUTE: [u8; 7] = [0x89, 7, 4, 192, 0, 2, 77];
    /// An option with a length that doesn't even hold itself.
    pub const TOO_SHORT: [u8; 4] = [0x44, 1, 1, 1];
    /// An option that goes on beyond the header.
    pub const TOO_LONG: [u8; 4] = [0x44, 5, 1, 1];
}

impl Ip {
    pub(super) const fn new(source: IpAddr, destination: IpAddr) -> Self {
        Self {
            source,
            destination,
            hops: 64,
            class: 0,
            id: 0x1d1d,
            dont_fragment: false,
            options: Vec::new(),
            extensions: Vec::new(),
            piece: None,
            most: usize::MAX,
        }
    }

    /// The header with all that belongs to it, and what comes behind it.
    pub(super) fn encapsulate(&self, body: &Body) -> (Vec<u8>, Vec<u8>) {
        let payload = body.bytes(self.source, self.destination);
        let whole = 0..payload.len();
        let piece = self.piece.as_ref();
        let range = piece.map_or(whole, |piece| piece.range.clone());
        let mut payload = payload[range].to_vec();
        payload.truncate(self.most);
        let header = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => self.v4(
                source.octets(),
                destination.octets(),
                body.protocol(),
                payload.len(),
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => self.v6(
                source.octets(),
                destination.octets(),
                body.protocol(),
                payload.len(),
            ),
            ends => panic!("a packet between families: {ends:?}"),
        };
        (header, payload)
    }

    fn v4(&self, source: [u8; 4], destination: [u8; 4], protocol: u8, payload: usize) -> Vec<u8> {
        assert!(self.extensions.is_empty(), "IPv4 has no extension headers");
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let length = 20 + options.len() + payload;
        let [traffic_class, congestion] = [self.class >> 2, self.class & 3];
        let mut header = Ipv4Header {
            dscp: traffic_class.try_into().expect("six bits"),
            ecn: congestion.try_into().expect("two bits"),
            total_len: length.try_into().expect("at most 64 KiB"),
            identification: self.id as u16,
            dont_fragment: self.dont_fragment,
            more_fragments: self.piece.as_ref().is_some_and(|piece| piece.more),
            fragment_offset: IpFragOffset::try_new(self.offset()).expect("13 bits"),
            time_to_live: self.hops,
            protocol: IpNumber(protocol),
            header_checksum: 0,
            source,
            destination,
            options: Ipv4Options::try_from(options.as_slice()).expect("at most 40 bytes of options"),
        };
        header.header_checksum = header.calc_header_checksum();
        header.to_bytes().to_vec()
    }

    fn v6(&self, source: [u8; 16], destination: [u8; 16], protocol: u8, payload: usize) -> Vec<u8> {
        assert!(self.options.is_empty(), "IPv6 has no options of this kind");
        let mut numbers: Vec<u8> = self.extensions.iter().map(Extension::number).collect();
        numbers.extend(self.piece.as_ref().map(|_| 44));
        numbers.push(protocol);
        let mut extensions = Vec::new();
        for (extension, next) in self.extensions.iter().zip(&numbers[1..]) {
            extensions.extend(extension.bytes(*next));
        }
        if let Some(piece) = &self.piece {
            let offset = (self.offset() << 3) | u16::from(piece.more);
            extensions.extend([protocol, 0]);
            extensions.extend(offset.to_be_bytes());
            extensions.extend(self.id.to_be_bytes());
        }
        let length = extensions.len() + payload;
        let header = Ipv6Header {
            traffic_class: self.class,
            flow_label: Default::default(),
            payload_length: length.try_into().expect("at most 64 KiB"),
            next_header: IpNumber(numbers[0]),
            hop_limit: self.hops,
            source,
            destination,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(extensions);
        bytes
    }

    /// In units of eight bytes.
    fn offset(&self) -> u16 {
        let start = self.piece.as_ref().map_or(0, |piece| piece.range.start);
        assert_eq!(start % 8, 0, "fragments begin at multiples of eight bytes");
        (start / 8) as u16
    }
}

impl Extension {
    const fn number(&self) -> u8 {
        match self {
            Self::HopByHop(_) | Self::Jumbo(_) => 0,
            Self::Destination(_) => 60,
            Self::Routing(..) => 43,
            Self::Authentication => 51,
            Self::Unknown(number) => *number,
        }
    }

    fn bytes(&self, next: u8) -> Vec<u8> {
        match *self {
            Self::HopByHop(eights) | Self::Destination(eights) => {
                let padding = eights * 8 - 4;
                let mut bytes = vec![next, eights - 1, 1, padding];
                bytes.resize(usize::from(eights) * 8, 0);
                bytes
            }
            Self::Jumbo(length) => {
                let mut bytes = vec![next, 0, 0xc2, 4];
                bytes.extend(length.to_be_bytes());
                bytes
            }
            Self::Routing(kind, left) => {
                let mut bytes = vec![next, 2, kind, left, 0, 0, 0, 0];
                bytes.extend(VISITED);
                bytes
            }
            Self::Authentication => {
                let mut bytes = vec![next, 4, 0, 0];
                bytes.extend([0xa5; 20]);
                bytes
            }
            Self::Unknown(_) => vec![next, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

impl Packet {
    /// TTL or hop limit; 64 otherwise.
    #[must_use]
    pub const fn hops(mut self, hops: u8) -> Self {
        self.ip.hops = hops;
        self
    }

    /// Type of service or traffic class.
    #[must_use]
    pub const fn class(mut self, class: u8) -> Self {
        self.ip.class = class;
        self
    }

    /// Identification.
    #[must_use]
    pub const fn id(mut self, id: u32) -> Self {
        self.ip.id = id;
        self
    }

    /// IPv4: with DF.
    #[must_use]
    pub const fn dont_fragment(mut self) -> Self {
        self.ip.dont_fragment = true;
        self
    }

    /// With one more IPv4 option; the header is filled up with zeros.
    #[must_use]
    pub fn option(mut self, option: &[u8]) -> Self {
        self.ip.options.extend(option);
        self
    }

    /// With one more IPv6 extension header.
    #[must_use]
    pub fn extension(mut self, extension: Extension) -> Self {
        self.ip.extensions.push(extension);
        self
    }

    /// IPv4: with a header checksum that is wrong by this much, as one's complement has it.
    #[must_use]
    pub fn header_checksum_off_by(self, off: u16) -> Self {
        let (header, _) = self.ip.encapsulate(&self.body);
        let right = u16::from_be_bytes([header[10], header[11]]);
        self.network_bytes(10, &ones_complement_sum(right, off).to_be_bytes())
    }

    /// With no more than so many bytes behind its IP header, whose length follows.
    #[must_use]
    pub const fn cut_payload(mut self, most: usize) -> Self {
        self.ip.most = most;
        self
    }

    /// A fragment: these bytes of the payload; others come after them.
    #[must_use]
    pub const fn fragment(mut self, range: Range<usize>) -> Self {
        self.ip.piece = Some(Piece { range, more: true });
        self
    }

    /// The last fragment: the payload from this byte on.
    #[must_use]
    pub fn last_fragment(mut self, from: usize) -> Self {
        let end = self.body.bytes(self.ip.source, self.ip.destination).len();
        self.ip.piece = Some(Piece {
            range: from..end,
            more: false,
        });
        self
    }

    /// IPv6: whole, but with a fragment header (RFC 6946).
    #[must_use]
    pub fn atomic(self) -> Self {
        self.last_fragment(0)
    }
}
