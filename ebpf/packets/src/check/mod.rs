//! Whether a packet is whole: every length fits into the next one, and every checksum is what an independent library
//! (pnet; crc for SCTP) makes of the bytes.
//!
//! ```text
//! frame ─▶ tags ─▶ network: IPv4, IPv6 ─▶ transport: TCP, UDP, SCTP, ICMP ─▶ quote ─▶ network …
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `network` | IPv4, IPv6, extension headers |
//! | `transport` | TCP, UDP, SCTP, ICMP and what it quotes |
//! | `fix_truncated` | [`mend`]: what was cut off, as if it had been sent so |
//!
//! Knows nothing of the code that builds packets, and nothing of the programs.

mod fix_truncated;
mod network;
mod transport;

use pnet_packet::ethernet::{EtherTypes, EthernetPacket};

pub use self::{
    fix_truncated::mend,
    network::{Ends, ends},
};
use crate::build::{C_TAG, S_TAG};

/// What is wrong with a packet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// Neither IPv4 nor IPv6.
    #[error("EtherType {0:#06x} is neither IPv4's nor IPv6's")]
    NoIp(u16),
    /// Something is cut off.
    #[error("{what}: {found} bytes, at least {least} expected")]
    Short {
        /// What.
        what: &'static str,
        /// How many bytes there are.
        found: usize,
        /// How many it takes.
        least: usize,
    },
    /// A field has a value that can't be.
    #[error("{what} is {found}, {expected} expected")]
    Field {
        /// Which.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What would be right.
        expected: u64,
    },
    /// A checksum is not the one of the bytes.
    #[error("{what} is {found:#x}, but of these bytes it is {expected:#x}")]
    Checksum {
        /// Which.
        what: &'static str,
        /// In the packet.
        found: u32,
        /// Recomputed.
        expected: u32,
    },
    /// An ICMP error about a packet that its receiver did not send.
    #[error("an ICMP error to {to} quotes a packet from {from}")]
    Misdirected {
        /// Receiver of the error.
        to: std::net::IpAddr,
        /// Sender of the quoted packet.
        from: std::net::IpAddr,
    },
    /// An ICMP error with a quote that is wrong itself.
    #[error("in what ICMP quotes: {0}")]
    Quote(#[source] Box<Self>),
}

/// Checks a frame.
///
/// # Errors
/// The first thing that is [`Wrong`].
pub fn check(frame: &[u8]) -> Result<(), Wrong> {
    network::check(ip(frame)?, network::Depth::Packet)
}

/// What follows the Ethernet header and its tags.
fn ip(frame: &[u8]) -> Result<&[u8], Wrong> {
    let ethernet = EthernetPacket::new(frame).ok_or(Wrong::Short {
        what: "Ethernet header",
        found: frame.len(),
        least: 14,
    })?;
    let mut kind = ethernet.get_ethertype();
    let mut rest = &frame[14..];
    while [C_TAG, S_TAG].contains(&kind.0) {
        let [_, _, high, low, inner @ ..] = rest else {
            return Err(Wrong::Short {
                what: "802.1Q tag",
                found: rest.len(),
                least: 4,
            });
        };
        kind.0 = u16::from_be_bytes([*high, *low]);
        rest = inner;
    }
    let (first, version) = (rest.first().copied().unwrap_or_default() >> 4, kind);
    match (version, first) {
        (EtherTypes::Ipv4, 4) | (EtherTypes::Ipv6, 6) => Ok(rest),
        (EtherTypes::Ipv4 | EtherTypes::Ipv6, found) => Err(Wrong::Field {
            what: "IP version",
            found: found.into(),
            expected: if version == EtherTypes::Ipv4 { 4 } else { 6 },
        }),
        (kind, _) => Err(Wrong::NoIp(kind.0)),
    }
}

/// The first so many bytes of something.
fn at_least<'a>(what: &'static str, bytes: &'a [u8], least: usize) -> Result<&'a [u8], Wrong> {
    bytes.get(..least).ok_or(Wrong::Short {
        what,
        found: bytes.len(),
        least,
    })
}

fn checksum(what: &'static str, found: impl Into<u32>, expected: impl Into<u32>) -> Result<(), Wrong> {
    let (found, expected) = (found.into(), expected.into());
    if found == expected {
        Ok(())
    } else {
        Err(Wrong::Checksum {
            what,
            found,
            expected,
        })
    }
}

#[cfg(test)]
mod tests;
