//! What follows the IP headers.

use lb_abi::{ICMP, ICMPV6, Port, SCTP, TCP, UDP};

use super::{Part, Unread};
use crate::net::{
    conntrack::chunk,
    packet_state::{Fragment, Headers, Transport},
    traits::Packet,
};

/// Of a quoted packet, what RFC 792 promises.
const QUOTED: u32 = 8;

/// Reads ports, and what a packet shows of its connection. Of fragments other than the first: only what they carry.
#[inline(always)]
pub(in crate::net) fn transport<P: Packet>(
    packet: P,
    headers: &mut Headers,
    part: Part,
) -> Result<(), Unread> {
    let protocol = headers.tuple.protocol;
    headers.signals = 0;
    headers.unsummed = false;
    let icmp = if headers.v4 { ICMP } else { ICMPV6 };
    headers.transport = match protocol {
        TCP | UDP | SCTP => Transport::Ports,
        _ if protocol == icmp => Transport::Icmp,
        _ => Transport::Other,
    };
    if matches!(headers.transport, Transport::Other) || matches!(headers.fragment, Fragment::Later) {
        return Ok(());
    }
    let at = headers.l4;
    let there = headers.end.wrapping_sub(at);
    if there < QUOTED {
        return Err(Unread::Malformed);
    }
    if protocol == TCP && matches!(part, Part::Packet) {
        if there < 20 {
            return Err(Unread::Malformed);
        }
        let [ports, _, _, fourth] = packet.words::<4>(at).ok_or(Unread::Malformed)?;
        let [offset, flags, ..] = fourth.to_ne_bytes();
        let header = u32::from(offset >> 4) * 4;
        if header < 20 || header > there {
            return Err(Unread::Malformed);
        }
        set_ports(headers, ports);
        headers.signals = flags;
        return Ok(());
    }
    let [ports, second] = packet.words::<2>(at).ok_or(Unread::Malformed)?;
    if matches!(headers.transport, Transport::Icmp) {
        let [kind, ..] = ports.to_ne_bytes();
        headers.signals = kind;
        return Ok(());
    }
    set_ports(headers, ports);
    match protocol {
        UDP => {
            let [high, low, checksum_high, checksum_low] = second.to_ne_bytes();
            headers.unsummed = checksum_high == 0 && checksum_low == 0;
            let length = u32::from(u16::from_be_bytes([high, low]));
            let compared = matches!(part, Part::Packet) && !packet.is_gso();
            if compared && (length < 8 || matches!(headers.fragment, Fragment::Whole) && length > there) {
                return Err(Unread::Malformed);
            }
        }
        SCTP if matches!(part, Part::Packet) => {
            if there < 13 {
                return Err(Unread::Malformed);
            }
            headers.signals = chunk(packet.byte(at + 12).ok_or(Unread::Malformed)?);
        }
        _ => {}
    }
    Ok(())
}

/// The first word of every header with ports.
#[inline(always)]
const fn set_ports(headers: &mut Headers, word: u32) {
    let [a, b, c, d] = word.to_ne_bytes();
    headers.tuple.source_port = Port([a, b]);
    headers.tuple.destination_port = Port([c, d]);
}
