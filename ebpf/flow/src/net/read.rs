//! Reads a packet's headers. Every length is compared with what is there.
//!
//! The fixed part of the IP header comes first, alone: by its addresses alone most packets are found not to matter.

mod extensions;
mod options;
mod transport;

use lb_abi::{Address, Port, SCTP, TCP, Tuple};

use crate::net::{
    conntrack::{chunk, starts},
    packet_state::{Fragment, Headers},
    traits::Packet,
};

pub(super) use self::transport::transport;
pub use self::{
    extensions::has_jumbo,
    options::{Options, options},
};

/// Why a packet is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Unread {
    /// It is neither IPv4 nor IPv6; or IPv6 with addresses that stand for IPv4 ones, which no host may send (RFC 4942,
    /// 2.2), and which would be taken for them here.
    Foreign,
    /// Not even its destination is known.
    Unreadable,
    /// Its lengths or headers contradict each other, or what is there.
    Malformed,
    /// Its sender has chosen the route.
    SourceRouted,
}

/// Whether lengths are compared with what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// They are: this is the packet.
    Packet,
    /// They are not: this is what an ICMP error quotes, up to [`Headers::end`], as it was set before.
    Quote,
}

const ETHERNET: u32 = 14;
const TAG: u32 = 4;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const CUSTOMER_TAG: [u8; 2] = [0x81, 0x00];
const SERVICE_TAG: [u8; 2] = [0x88, 0xa8];

/// Finds the IP header, behind at most two tags, and reads its fixed part.
#[inline(always)]
pub(super) fn outermost<P: Packet>(packet: P, headers: &mut Headers) -> Result<(), Unread> {
    match packet.protocol() {
        IPV4 => v4(packet, ETHERNET, headers),
        IPV6 => v6(packet, ETHERNET, headers),
        CUSTOMER_TAG | SERVICE_TAG => tagged(packet, headers),
        _ => Err(Unread::Foreign),
    }
}

#[inline(never)]
fn tagged<P: Packet>(packet: P, headers: &mut Headers) -> Result<(), Unread> {
    // The EtherType is the last two bytes of a tag, as it is of an Ethernet header.
    let once = ETHERNET + TAG;
    match packet.half(once - 2).ok_or(Unread::Foreign)? {
        IPV4 => return v4(packet, once, headers),
        IPV6 => return v6(packet, once, headers),
        CUSTOMER_TAG | SERVICE_TAG => {}
        _ => return Err(Unread::Foreign),
    }
    let twice = once + TAG;
    match packet.half(twice - 2).ok_or(Unread::Foreign)? {
        IPV4 => v4(packet, twice, headers),
        IPV6 => v6(packet, twice, headers),
        _ => Err(Unread::Foreign),
    }
}

/// Reads the fixed part of an IPv4 header.
#[inline(always)]
pub(super) fn v4<P: Packet>(packet: P, l3: u32, headers: &mut Headers) -> Result<(), Unread> {
    let [first, second, third, source, destination] = packet.words::<5>(l3).ok_or(Unread::Unreadable)?;
    let [version, ..] = first.to_ne_bytes();
    if version >> 4 != 4 {
        return Err(Unread::Unreadable);
    }
    let [_, protocol, ..] = third.to_ne_bytes();
    headers.v4 = true;
    headers.l3 = l3;
    headers.fixed = [first, second, third];
    headers.tuple = without_ports(
        Address::v4(source.to_ne_bytes()),
        Address::v4(destination.to_ne_bytes()),
        protocol,
    );
    Ok(())
}

/// Reads the fixed part of an IPv6 header.
#[inline(always)]
pub(super) fn v6<P: Packet>(packet: P, l3: u32, headers: &mut Headers) -> Result<(), Unread> {
    let [first, second, a, b, c, d, e, f, g, h] = packet.words::<10>(l3).ok_or(Unread::Unreadable)?;
    let [version, ..] = first.to_ne_bytes();
    if version >> 4 != 6 {
        return Err(Unread::Unreadable);
    }
    let source = Address::from_words([a, b, c, d]);
    let destination = Address::from_words([e, f, g, h]);
    if source.is_v4() || destination.is_v4() {
        return Err(Unread::Foreign);
    }
    let [_, _, next, _] = second.to_ne_bytes();
    headers.v4 = false;
    headers.l3 = l3;
    headers.fixed = [first, second, 0];
    headers.tuple = without_ports(source, destination, next);
    Ok(())
}

#[inline(always)]
const fn without_ports(source: Address, destination: Address, protocol: u8) -> Tuple {
    Tuple {
        source,
        destination,
        source_port: Port([0; 2]),
        destination_port: Port([0; 2]),
        protocol,
        pad: [0; 3],
    }
}

/// Whether it may begin a connection, by where its flags are in nearly all packets; what this leaves out begins none.
#[inline(always)]
pub(super) fn may_start<P: Packet>(packet: P, headers: &Headers) -> bool {
    let [first, ..] = headers.fixed;
    let [version_and_length, ..] = first.to_ne_bytes();
    let l4 = headers.l3
        + if headers.v4 {
            u32::from(version_and_length & 15) * 4
        } else {
            40
        };
    match headers.tuple.protocol {
        TCP => packet.byte(l4 + 13).is_some_and(|flags| starts(TCP, flags)),
        SCTP => packet.byte(l4 + 12).is_some_and(|kind| starts(SCTP, chunk(kind))),
        // What follows is read then.
        next => !headers.v4 && (extensions::is_one(next) || next == extensions::HOP_BY_HOP),
    }
}

/// Reads what is left of the IP headers: where they and the packet end, and whether it is a fragment.
#[inline(always)]
pub(super) fn internet<P: Packet>(packet: P, headers: &mut Headers, part: Part) -> Result<(), Unread> {
    let end = match part {
        Part::Packet => packet.length(),
        Part::Quote => headers.end,
    };
    // The fixed part was read, so that there is more.
    let there = end.wrapping_sub(headers.l3);
    let is_gso = matches!(part, Part::Packet) && packet.is_gso();
    headers.fragment = Fragment::Whole;
    let [first, second, _] = headers.fixed;
    if headers.v4 {
        let [version_and_length, _, high, low] = first.to_ne_bytes();
        let header = u32::from(version_and_length & 15) * 4;
        let total = match u32::from(u16::from_be_bytes([high, low])) {
            0 if is_gso => there,
            total => total,
        };
        if header < 20 || header > there || total < header || total > there && matches!(part, Part::Packet) {
            return Err(Unread::Malformed);
        }
        headers.l4 = headers.l3 + header;
        headers.end = headers.l3 + if total < there { total } else { there };
        if header > 20 {
            match packet.options(headers.l3 + 20, headers.l4) {
                Options::Whole => {}
                Options::Malformed => return Err(Unread::Malformed),
                Options::SourceRouted => return Err(Unread::SourceRouted),
            }
        }
        let [id_high, id_low, offset_high, offset_low] = second.to_ne_bytes();
        if u16::from_be_bytes([offset_high & 0x1f, offset_low]) != 0 {
            headers.fragment = Fragment::Later;
        } else if offset_high & 0x20 != 0 {
            headers.fragment = Fragment::First;
        }
        headers.fragment_id = [id_high, id_low, 0, 0];
        return Ok(());
    }
    let [high, low, ..] = second.to_ne_bytes();
    let total = match u32::from(u16::from_be_bytes([high, low])) {
        0 if is_gso => there,
        payload => 40 + payload,
    };
    if there < 40 || total > there && matches!(part, Part::Packet) {
        return Err(Unread::Malformed);
    }
    headers.l4 = headers.l3 + 40;
    headers.end = headers.l3 + if total < there { total } else { there };
    if extensions::is_one(headers.tuple.protocol) || headers.tuple.protocol == extensions::HOP_BY_HOP {
        extensions::skip(packet, headers, is_gso)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
