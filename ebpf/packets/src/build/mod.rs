//! Packets, made from scratch: whatever of them a table does not say is right, checksums above all.
//!
//! ```text
//! tcp(client, frontend).syn()   tcp(client, backend).syn()   quoting(router, client, TIME_EXCEEDED, &quoted, 8)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `ip` | headers, options, extension headers, fragments |
//! | `transport` | TCP, UDP, SCTP |
//! | `icmp` | ICMP, ICMPv6, and what their errors quote |
//! | `frame` | packets given byte by byte |
//!
//! Headers are etherparse's where it knows them. SCTP, IPv4 options and IPv6 extension headers are not, and are built
//! here. Building an impossible packet (a payload of more than 64 KiB) panics: it is the
//! table that is wrong.

mod frame;
mod icmp;
mod ip;
mod transport;

use std::net::IpAddr;

pub use self::{
    frame::frame,
    icmp::{Error, Icmp, echo, icmp, quoting},
    ip::{Extension, options},
    transport::{sctp, tcp, udp},
};
use self::{ip::Ip, transport::Body};
use crate::test_node::{NODE_LINK, PEER_LINK};

/// An address and a port.
pub type End = (IpAddr, u16);

/// TPID of 802.1Q.
pub const C_TAG: u16 = 0x8100;
/// TPID of 802.1ad.
pub const S_TAG: u16 = 0x88a8;

/// A packet in an Ethernet frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    link: [[u8; 6]; 2],
    tags: Vec<(u16, u16)>,
    kind: u16,
    ip: Ip,
    body: Body,
    edits: Vec<Edit>,
    length: Length,
    /// Byte by byte, instead of all that.
    frame: Option<Vec<u8>>,
}

/// A field that is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Edit {
    /// Whose: 0 is the first byte of this header.
    base: Base,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Base {
    Network,
    Transport,
}

/// How much of a frame there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    Whole,
    /// This many bytes are missing at its end.
    Short(usize),
    /// This many bytes come after its end, as Ethernet pads short packets.
    Padded(usize),
}

/// A packet of a protocol that has no ports.
pub fn other(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Packet {
    Packet::new(source, destination, Body::Other(protocol, payload.to_vec()))
}

impl Packet {
    fn new(source: IpAddr, destination: IpAddr, body: Body) -> Self {
        Self {
            link: [NODE_LINK, PEER_LINK],
            tags: Vec::new(),
            kind: if source.is_ipv4() { 0x0800 } else { 0x86dd },
            ip: Ip::new(source, destination),
            body,
            edits: Vec::new(),
            length: Length::Whole,
            frame: None,
        }
    }

    /// Comes from another end.
    #[must_use]
    pub fn from(mut self, (address, port): End) -> Self {
        self.ip.source = address;
        self.body.set_source(port);
        self
    }

    /// Goes to another end.
    #[must_use]
    pub fn to(mut self, (address, port): End) -> Self {
        self.ip.destination = address;
        self.body.set_destination(port);
        self
    }

    /// Link addresses: destination, source. Otherwise it is on its way to this node.
    #[must_use]
    pub const fn link(mut self, destination: [u8; 6], source: [u8; 6]) -> Self {
        self.link = [destination, source];
        self
    }

    /// On its way back: link addresses are swapped.
    #[must_use]
    pub const fn back(mut self) -> Self {
        let [destination, source] = self.link;
        self.link = [source, destination];
        self
    }

    /// On its way into the stack by the loopback device, whose link address that is.
    #[must_use]
    pub const fn inward(mut self) -> Self {
        self.link = [[0; 6]; 2];
        self
    }

    /// With one more tag inside those that it has.
    #[must_use]
    pub fn tag(mut self, tpid: u16, id: u16) -> Self {
        self.tags.push((tpid, id));
        self
    }

    /// With another EtherType.
    #[must_use]
    pub const fn ether_type(mut self, kind: u16) -> Self {
        self.kind = kind;
        self
    }

    /// Without its last bytes; what its headers say of its length stays.
    #[must_use]
    pub const fn short(mut self, bytes: usize) -> Self {
        self.length = Length::Short(bytes);
        self
    }

    /// With bytes after its end.
    #[must_use]
    pub const fn padded(mut self, bytes: usize) -> Self {
        self.length = Length::Padded(bytes);
        self
    }

    /// With other bytes from this offset of its IP header on; no checksum follows.
    #[must_use]
    pub fn network_bytes(self, offset: usize, bytes: &[u8]) -> Self {
        self.edit(Base::Network, offset, bytes)
    }

    /// With other bytes from this offset of its TCP, UDP, SCTP or ICMP header on; no checksum follows.
    #[must_use]
    pub fn transport_bytes(self, offset: usize, bytes: &[u8]) -> Self {
        self.edit(Base::Transport, offset, bytes)
    }

    fn edit(mut self, base: Base, offset: usize, bytes: &[u8]) -> Self {
        self.edits.push(Edit {
            base,
            offset,
            bytes: bytes.to_vec(),
        });
        self
    }

    /// The frame.
    pub fn bytes(&self) -> Vec<u8> {
        if let Some(frame) = &self.frame {
            return frame.clone();
        }
        let mut frame = self.link.concat();
        for (tpid, id) in &self.tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend(id.to_be_bytes());
        }
        frame.extend(self.kind.to_be_bytes());
        let network = frame.len();
        let (header, payload) = self.ip.encapsulate(&self.body);
        let transport = network + header.len();
        frame.extend(header);
        frame.extend(payload);
        for edit in &self.edits {
            let base = match edit.base {
                Base::Network => network,
                Base::Transport => transport,
            };
            frame[base + edit.offset..][..edit.bytes.len()].copy_from_slice(&edit.bytes);
        }
        match self.length {
            Length::Whole => {}
            Length::Short(missing) => frame.truncate(frame.len() - missing),
            Length::Padded(more) => frame.resize(frame.len() + more, 0),
        }
        frame
    }

    /// From the IP header on.
    pub fn network(&self) -> Vec<u8> {
        self.bytes().split_off(self.network_offset())
    }

    /// Where in the frame the IP header begins.
    pub fn network_offset(&self) -> usize {
        let tags = self.frame.as_deref().map_or(self.tags.len(), frame::tags);
        14 + 4 * tags
    }

    /// The traffic that it is: its length by its IP header.
    pub fn traffic(&self) -> u64 {
        if let Some(frame) = &self.frame {
            return frame::traffic(&frame[self.network_offset()..]);
        }
        let (header, payload) = self.ip.encapsulate(&self.body);
        (header.len() + payload.len()) as u64
    }
}

/// Bytes that all differ, so that one that is moved is seen.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}
