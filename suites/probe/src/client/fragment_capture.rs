//! Fragments on the devices of this network namespace, as a packet socket shows them: after the IP stack has
//! fragmented, and before it reassembles.
//!
//! Nothing runs beside the exchanges: the kernel shows a packet before it delivers its contents, so that all fragments
//! of an answer are in the ring when its datagram has been read.

use std::{
    collections::HashSet,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Mutex, MutexGuard, PoisonError},
};

use oracle::history::Fragments;

use crate::packets::Ring;

const UDP: u8 = 17;
/// Next header of a fragment (RFC 8200).
const FRAGMENT: u8 = 44;

/// Packets on all devices, and the fragments of UDP among them.
pub(super) struct Watch(Mutex<(Ring, Vec<Piece>)>);

/// A fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// Sent by this network namespace.
    is_sent: bool,
    datagram: Datagram,
    /// Offset in bytes.
    offset: u16,
    /// Source and destination port; only the first fragment has them.
    ports: Option<[u16; 2]>,
}

/// What fragments of one datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Datagram {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// Of the system calls: CAP_NET_RAW is needed.
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self(Mutex::new((Ring::open()?, Vec::new()))))
    }

    /// Drops what was seen.
    pub(super) fn forget(&self) {
        self.up_to_now().1.clear();
    }

    /// Fragments that were sent from a UDP port, and to it.
    pub(super) fn of(&self, port: u16) -> Fragments {
        of(&self.up_to_now().1, port)
    }

    fn up_to_now(&self) -> MutexGuard<'_, (Ring, Vec<Piece>)> {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ring, pieces) = &mut *both;
        // Fragments that were not seen are no violation.
        pieces.extend(ring.filter_map(|seen| piece(&seen.bytes, seen.is_sent)));
        both
    }
}

/// A fragment of UDP; `None` if the packet is none.
fn piece(packet: &[u8], is_sent: bool) -> Option<Piece> {
    let (datagram, field, payload) = match packet.first()? >> 4 {
        4 => v4(packet)?,
        _ => v6(packet)?,
    };
    let [offset, more] = field;
    if offset == 0 && more == 0 {
        return None;
    }
    let number = |at: usize| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    let ports = if offset == 0 {
        Some([number(0)?, number(2)?])
    } else {
        None
    };
    Some(Piece {
        is_sent,
        datagram,
        offset,
        ports,
    })
}

/// The datagram, offset in bytes and whether more follow, and the payload (RFC 791).
fn v4(packet: &[u8]) -> Option<(Datagram, [u16; 2], &[u8])> {
    let header = packet.first_chunk::<20>()?;
    let address = |at: usize| Some(IpAddr::from(Ipv4Addr::from(*header[at..].first_chunk::<4>()?)));
    let field = u16::from_be_bytes([header[6], header[7]]);
    let datagram = Datagram {
        source: address(12)?,
        destination: address(16)?,
        identification: u16::from_be_bytes([header[4], header[5]]).into(),
    };
    let payload = packet.get(usize::from(header[0] & 0xf) * 4..)?;
    (header[9] == UDP).then_some((datagram, [(field & 0x1fff) * 8, field & 0x2000], payload))
}

/// The same for IPv6 (RFC 8200). The probe sends no fragment header behind other extension headers.
fn v6(packet: &[u8]) -> Option<(Datagram, [u16; 2], &[u8])> {
    let (header, payload) = packet.split_first_chunk::<40>()?;
    let address = |at: usize| Some(IpAddr::from(Ipv6Addr::from(*header[at..].first_chunk::<16>()?)));
    let ([next, _, high, low, a, b, c, d], payload) = payload.split_first_chunk::<8>()?;
    let field = u16::from_be_bytes([*high, *low]);
    let datagram = Datagram {
        source: address(8)?,
        destination: address(24)?,
        identification: u32::from_be_bytes([*a, *b, *c, *d]),
    };
    let is_one = header[6] == FRAGMENT && *next == UDP;
    is_one.then_some((datagram, [field & 0xfff8, field & 1], payload))
}

/// A later fragment has no ports. It belongs to the first fragment with its source, destination and identification;
/// where none has all three, to one with the last two: then its source is wrong.
fn of(seen: &[Piece], port: u16) -> Fragments {
    let firsts = |is_sent: bool| seen.iter().filter(move |piece| piece.is_sent == is_sent);
    let own = |is_sent: bool| -> HashSet<Datagram> {
        let is_own = |piece: &&Piece| {
            piece
                .ports
                .is_some_and(|ports| ports[usize::from(!is_sent)] == port)
        };
        firsts(is_sent)
            .filter(is_own)
            .map(|piece| piece.datagram)
            .collect()
    };
    let (sent, received) = (own(true), own(false));
    let begun: HashSet<Datagram> = firsts(false)
        .filter(|piece| piece.ports.is_some())
        .map(|piece| piece.datagram)
        .collect();
    let meant = |datagram: &Datagram| {
        let same = |one: &Datagram| {
            (one.destination, one.identification) == (datagram.destination, datagram.identification)
        };
        !begun.contains(datagram) && received.iter().any(same)
    };
    let mut fragments = Fragments::default();
    for Piece {
        is_sent,
        datagram,
        offset,
        ..
    } in seen
    {
        if *is_sent && sent.contains(datagram) {
            fragments.sent.push(*offset);
            fragments.to.insert(datagram.destination);
        } else if !is_sent && (received.contains(datagram) || meant(datagram)) {
            fragments.received += 1;
            fragments.from.insert(datagram.source);
        }
    }
    fragments
}

#[cfg(test)]
mod tests;
